"""The GPU's wheel on a machine without a GPU, where `make test-cuda-placement` has installed it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.cuda.probed import Probed, read_probe
from tests.cuda.rig.rig import Rig, build_rig

PYTHON_VARIABLE = "FORMERD_CUDA_PYTHON"


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """Skips the test where the wheel is not installed: it takes 2 GB."""
    python = os.environ.get(PYTHON_VARIABLE)
    if python is None:
        pytest.skip("needs ONNX Runtime's GPU wheel: make test-cuda-placement")
    return build_rig(Path(python).absolute(), tmp_path_factory.mktemp("rig"))


@pytest.fixture(scope="session")
def probe(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Probed]:
    """What the wheel makes of an artefact, found out once."""

    @cache
    def run(directory: Path) -> Probed:
        trace = tmp_path_factory.mktemp("trace") / "trace"
        done = rig.run("-m", "tests.cuda.probe", str(directory), trace=trace)
        assert done.returncode == 0, done.stderr
        return read_probe(done.stdout, trace)

    return run
