"""The server that all tests of the real checkpoints share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.real_artefacts import RealArtefacts
from tests.e2e.real_artefacts import real_artefacts as real_artefacts  # a fixture, for all
from tests.e2e.server_process import ServerProcess, running_server


@pytest.fixture(scope="session")
def real_server(real_artefacts: RealArtefacts) -> Iterator[ServerProcess]:
    """One server with both real models."""
    with running_server([real_artefacts.minilm, real_artefacts.smollm2]) as server:
        yield server
