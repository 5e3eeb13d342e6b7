"""The command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from export.__main__ import main
from export.manifest import MANIFEST_FILE, load_manifest
from tests.artefacts import decoder_artefact, read_weight, reseal, write_weight
from tests.checkpoints import write_decoder, write_encoder_decoder

_ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process."""

    def run_command(*arguments: object) -> Outcome:
        exit_code = main(list(map(str, arguments)))
        return Outcome(exit_code, *capsys.readouterr())

    return run_command


def test_no_such_directory(tmp_path: Path, run: Run) -> None:
    result = run("build", tmp_path / "nothing", "--output", tmp_path / "artefact")
    assert result.exit_code == 2
    assert f"error: {tmp_path / 'nothing'}: no such directory or file" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unsupported_family(tmp_path: Path, run: Run) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text('{"model_type": "mamba"}')
    result = run("build", checkpoint, "--output", tmp_path / "artefact")
    assert result.exit_code == 1
    assert "model_type 'mamba'; supported are" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_missing_tensors_are_listed_all_at_once(tmp_path: Path, run: Run) -> None:
    checkpoint = write_decoder(tmp_path / "checkpoint")
    tensors = load_file(checkpoint / "model.safetensors")
    lost = ["decoder.norm.weight", "decoder.blocks.1.attention.key.weight"]
    kept = {name: tensor for name, tensor in tensors.items() if name not in lost}
    save_file(kept, checkpoint / "model.safetensors")
    result = run("build", checkpoint, "--output", tmp_path / "artefact")
    assert result.exit_code == 1
    assert all(f"missing {name}" in result.stderr for name in lost)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_an_output_that_exists(tmp_path: Path, run: Run) -> None:
    shutil.copytree(decoder_artefact(), tmp_path / "artefact")
    result = run("build", "package:anything", "--output", tmp_path / "artefact")
    assert result.exit_code == 2
    assert "artefact exists; --force replaces it" in result.stderr


def test_a_build_from_elsewhere_has_the_same_bytes_and_tells_of_itself(tmp_path: Path) -> None:
    """In another process, from another checkout, with the gate in a process of its own."""
    here, there = decoder_artefact(), tmp_path / "there" / "artefact"
    there.parent.mkdir()
    checkout = tmp_path / "another checkout"
    for package in ("export", "model"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_ROOT / package, checkout / package, ignore=ignored)
    checkpoint = write_decoder(tmp_path / f"{here.name}-checkpoint")
    command = [sys.executable, "-m", "export", "build", str(checkpoint), "--output", str(there)]
    command += ["--name", here.name, "--json"]
    built = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert json.loads(built.stdout)["manifest"]["name"] == here.name
    assert "comparing greedy tokens with PyTorch" in built.stderr.splitlines()

    names = sorted(path.name for path in here.iterdir())
    assert names == sorted(path.name for path in there.iterdir())
    for name in names:
        content = (there / name).read_bytes()
        assert str(tmp_path).encode() not in content
        assert str(_ROOT).encode() not in content
        if name != MANIFEST_FILE:
            assert content == (here / name).read_bytes(), name
    assert load_manifest(here).digest == load_manifest(there).digest


def test_verify_finds_a_planted_fault(tmp_path: Path, run: Run) -> None:
    checkpoint, artefact = write_decoder(tmp_path / "checkpoint"), tmp_path / "artefact"
    shutil.copytree(decoder_artefact(), artefact)
    good = run("verify", artefact)
    assert good.exit_code == 0
    assert "that is all that was checked" in good.stdout

    name = "decoder.blocks.0.feed_forward.up.weight"
    weight = read_weight(artefact, name)
    weight[0] *= 10
    write_weight(artefact, name, weight)
    corrupt = run("verify", artefact)
    assert corrupt.exit_code == 1
    assert "error: decoder.data does not match its sha256" in corrupt.stderr.splitlines()

    reseal(artefact)
    wrong = run("verify", artefact, "--source", checkpoint)
    assert wrong.exit_code == 1
    assert f"FAILED weights (decoder.onnx: {name} [64, 96]): worst difference" in wrong.stderr
    assert "FAILED prefill (batch 1, row 0 of length 17, past 0)" in wrong.stderr


@pytest.mark.parametrize("command", [[], ["build"], ["verify"], ["inspect"], ["attention"]])
def test_help_is_complete(command: list[str], run: Run) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    if command == ["build"]:
        flags = "output name device precision pooling max-length revision tolerance force json"
        more = ("standard-ops", "accept-drift")
        assert all(f"--{flag}" in result.stdout for flag in (*flags.split(), *more))


def test_inspect_prints_json(run: Run) -> None:
    result = run("inspect", decoder_artefact(), "--json", "--compare-lstm")
    values = json.loads(result.stdout)
    assert values["cache_bytes_per_position"] == 512
    assert values["lstm"]["hidden"] == 64


def test_inspect_prints_tables(run: Run) -> None:
    result = run("inspect", decoder_artefact(), "--compare-lstm")
    assert "6-layer LSTM of 64" in result.stdout
    assert "parity.json" in result.stdout


def test_attention_is_drawn(tmp_path: Path, run: Run) -> None:
    checkpoint, page = write_decoder(tmp_path / "checkpoint"), tmp_path / "map.html"
    drawn = run("attention", checkpoint, "--text", "the sea", "--output", page)
    assert drawn.exit_code == 0
    assert "decoder, layer 1, mean of all heads" in page.read_text()
    refused = run("attention", checkpoint, "--text", "the sea", "--head", 9, "--output", page)
    assert refused.exit_code == 2
    assert "error: --head 9; the model has 0 to 3" in refused.stderr


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross-attention"])
def test_each_attention_of_an_encoder_decoder_is_drawn(tmp_path: Path, run: Run, kind: str) -> None:
    checkpoint, page = write_encoder_decoder(tmp_path / "checkpoint"), tmp_path / "map.html"
    texts = ("--text", "the sea", "--target", "the end")
    assert run("attention", checkpoint, *texts, "--kind", kind, "--output", page).exit_code == 0
    assert f"{kind}, layer 1, mean of all heads" in page.read_text()
