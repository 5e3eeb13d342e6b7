"""build: whole or not at all, the same bytes from anywhere, and what the manifest says."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from export.artefact import Artefact
from export.artefact_files import open_files
from export.build import ParityFailure, build
from export.build_options import BuildError, BuildOptions
from export.gate import check_artefact
from export.gate_task import GateTask
from export.manifest import MANIFEST_FILE, PARITY_FILE, Device, Precision, load_manifest
from export.parity import ParityReport
from export.progress import SilentSteps, Steps
from export.source import resolve_source
from export.structure import check_structure
from tests.artefacts import decoder_artefact, encoder_artefact
from tests.checkpoints import (
    DECODER,
    ENCODER,
    tiny_checkpoint,
    write_decoder,
    write_encoder,
)

_ROOT = Path(__file__).parent.parent.parent


def _build(checkpoint: Path, output: Path, name: str = "sample", **options: Any) -> None:
    wanted = BuildOptions(output, name, **options)
    build(resolve_source(str(checkpoint)), wanted, SilentSteps(), gate=check_artefact)


def _check_upcast(artefact: Path) -> None:
    assert load_manifest(artefact).precision is Precision.FP32
    report = json.loads((artefact / PARITY_FILE).read_bytes())
    (greedy,) = [check for check in report["checks"] if check["name"] == "greedy tokens"]
    assert greedy["passed"]
    assert greedy["shape"] == "64 tokens after 8"


def test_the_artefact_is_complete_and_sealed() -> None:
    for artefact in (encoder_artefact(), decoder_artefact()):
        manifest = load_manifest(artefact)
        check_structure(Artefact(manifest, open_files(artefact, manifest)))
        names = {path.name for path in artefact.iterdir()}
        assert names == set(manifest.files) | {MANIFEST_FILE}
        assert manifest.precision is Precision.FP32
        assert manifest.verified_on == (Device.CPU,)
        assert manifest.parity.checks > 40


def test_the_manifest_says_what_the_checkpoint_says() -> None:
    decoder = load_manifest(decoder_artefact())
    checkpoint = tiny_checkpoint(DECODER)
    assert decoder.kind == "decoder"
    assert decoder.config == json.loads(json.dumps(DECODER.to_json()))
    assert decoder.special_ids.eos == checkpoint.eos_ids
    assert decoder.chat_template == checkpoint.chat_template
    assert decoder.chat_tokens == checkpoint.chat_tokens
    assert decoder.limits.max_positions == DECODER.max_positions
    assert decoder.pooling is None
    encoder = load_manifest(encoder_artefact())
    assert encoder.pooling is not None
    assert (encoder.pooling.mode, encoder.pooling.normalize) == ("mean", True)
    assert encoder.pooling.dimensions == ENCODER.d_model
    assert encoder.limits.max_positions == 0


@pytest.mark.full
def test_a_checkpoint_in_fp16_is_upcast(tmp_path: Path) -> None:
    _build(write_decoder(tmp_path / "checkpoint", dtype=torch.float16), tmp_path / "artefact")
    _check_upcast(tmp_path / "artefact")


def test_an_artefact_is_replaced_only_by_force(tmp_path: Path) -> None:
    """By one of a checkpoint in bf16, which is upcast."""
    output = tmp_path / "artefact"
    shutil.copytree(encoder_artefact(), output)
    with pytest.raises(BuildError, match="artefact exists; --force replaces it"):
        BuildOptions(output, "sample")
    checkpoint = write_decoder(tmp_path / "checkpoint", dtype=torch.bfloat16)
    _build(checkpoint, output, force=True, max_length=200)
    _check_upcast(output)
    limits = load_manifest(output).limits
    assert limits.max_positions == limits.max_input == 200
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artefact", "checkpoint"]


def test_a_failed_gate_leaves_nothing_and_lists_everything(tmp_path: Path) -> None:
    checkpoint, output = write_encoder(tmp_path / "checkpoint"), tmp_path / "artefact"

    def gate(task: GateTask, steps: Steps) -> ParityReport:
        assert task.directory.parent == tmp_path  # so that all it takes is a new name
        assert not output.exists()
        return check_artefact(task, steps)

    options = BuildOptions(output, "sample", tolerance=1e-12)
    with pytest.raises(ParityFailure) as caught:
        build(resolve_source(str(checkpoint)), options, SilentSteps(), gate)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    failures = list(map(str, caught.value.report.failures))
    assert len(failures) > 5
    assert all("worst difference" in line and "bound 1e-12" in line for line in failures)
    assert any("batch 7, lengths 1 5 2 64 9 33 128" in line for line in failures)


@pytest.mark.full
@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_while_verifying(tmp_path: Path, number: signal.Signals, exit_code: int) -> None:
    """Nothing is at the output; what can be cleaned up is."""
    checkpoint, output = write_encoder(tmp_path / "checkpoint"), tmp_path / "artefact"
    arguments = [sys.executable, "-m", "export", "build", str(checkpoint), "--output", str(output)]
    with subprocess.Popen(arguments, cwd=_ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("comparing"):
                process.send_signal(number)
                break
        assert process.wait() == exit_code
    time.sleep(0.5)
    assert not output.exists()
    if number is not signal.SIGKILL:
        assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_a_directory_that_is_no_artefact_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(BuildError, match="is not an artefact; it is left alone"):
        BuildOptions(tmp_path, "sample", force=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "Sample"}, "--name Sample"),
        ({"output": Path("no/such/place/artefact")}, "no/such/place.*does not exist"),
    ],
)
def test_refuses_what_it_cannot_do_by_name(options: dict[str, Any], message: str) -> None:
    defaults: dict[str, Any] = {"output": Path("artefact"), "name": "sample"}
    with pytest.raises(BuildError, match=message):
        BuildOptions(**(defaults | options))
