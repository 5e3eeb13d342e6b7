"""The check of a GPU (tests/gpu), rehearsed: everything runs, and its numbers mean nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from export.gate import check_artefact
from export.manifest import Device, Manifest
from export.progress import SilentSteps
from export.source import resolve_source
from tests.artefacts import reseal
from tests.checkpoints import write_decoder, write_encoder
from tests.cuda.rig.rig import Rig
from tests.gpu.prepare import prepare
from tests.gpu.run import EXPERIMENTS


@pytest.fixture(scope="module")
def prepared(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny artefacts, said to be verified on CUDA: on the stand-in no replay agrees."""
    directory = tmp_path_factory.mktemp("gpu")
    encoder = resolve_source(str(write_encoder(directory / "encoder-checkpoint")))
    decoder = resolve_source(str(write_decoder(directory / "decoder-checkpoint")))
    prepare(directory, encoder, decoder, SilentSteps(), check_artefact)
    for name in ("encoder", "decoder"):
        reseal(directory / name, _verified)
    return directory


def _verified(manifest: Manifest) -> Manifest:
    return replace(manifest, verified_on=(Device.CPU, Device.CUDA))


def test_a_device_is_found(rig: Rig) -> None:
    done = rig.run("-m", "tests.gpu.run")
    assert json.loads(done.stdout)["free_bytes"] > 0


def test_no_device_is_a_reason_to_skip(rig: Rig) -> None:
    done = rig.run("-m", "tests.gpu.run", driver=False)
    assert "libcuda.so.1" in json.loads(done.stdout)["skipped"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs(rig: Rig, prepared: Path, name: str) -> None:
    done = rig.run("-m", "tests.gpu.run", str(prepared), name)
    assert done.returncode == 0, done.stderr
    findings = json.loads(done.stdout.splitlines()[-1])
    assert findings["criteria"]
    assert set(findings) == {"measured", "criteria", "passed"}
