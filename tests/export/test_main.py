"""The command line, as a process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from export.__main__ import cli
from tests.artefacts import decoder_artefact, read_weight, reseal, write_weight
from tests.checkpoints import write_decoder

_ROOT = Path(__file__).parent.parent.parent


def _run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "export", *map(str, arguments)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_no_such_directory(tmp_path: Path) -> None:
    result = _run("build", tmp_path / "nothing", "--output", tmp_path / "artefact")
    assert result.returncode == 2
    assert f"error: {tmp_path / 'nothing'}: no such directory or file" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unsupported_family(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text('{"model_type": "mamba"}')
    result = _run("build", checkpoint, "--output", tmp_path / "artefact")
    assert result.returncode == 1
    assert "model_type 'mamba'; supported are" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_missing_tensors_are_listed_all_at_once(tmp_path: Path) -> None:
    checkpoint = write_decoder(tmp_path / "checkpoint")
    tensors = load_file(checkpoint / "model.safetensors")
    lost = ["decoder.norm.weight", "decoder.blocks.1.attention.key.weight"]
    kept = {name: tensor for name, tensor in tensors.items() if name not in lost}
    save_file(kept, checkpoint / "model.safetensors")
    result = _run("build", checkpoint, "--output", tmp_path / "artefact")
    assert result.returncode == 1
    assert all(f"missing {name}" in result.stderr for name in lost)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


def test_an_output_that_exists(tmp_path: Path) -> None:
    shutil.copytree(decoder_artefact(), tmp_path / "artefact")
    result = _run("build", "package:anything", "--output", tmp_path / "artefact")
    assert result.returncode == 2
    assert "artefact exists; --force replaces it" in result.stderr


def test_build_prints_plain_lines_and_json(tmp_path: Path) -> None:
    checkpoint, artefact = write_decoder(tmp_path / "checkpoint"), tmp_path / "artefact"
    built = _run("build", checkpoint, "--output", artefact, "--name", "mine", "--json")
    assert built.returncode == 0, built.stderr
    assert json.loads(built.stdout)["manifest"]["name"] == "mine"
    assert "comparing greedy tokens with PyTorch" in built.stderr.splitlines()


def test_verify_finds_a_planted_fault(tmp_path: Path) -> None:
    checkpoint, artefact = write_decoder(tmp_path / "checkpoint"), tmp_path / "artefact"
    shutil.copytree(decoder_artefact(), artefact)
    good = CliRunner().invoke(cli, ["verify", str(artefact)])
    assert good.exit_code == 0
    assert "that is all that was checked" in good.stdout

    name = "decoder.blocks.0.feed_forward.up.weight"
    weight = read_weight(artefact, name)
    weight[0] *= 10
    write_weight(artefact, name, weight)
    corrupt = CliRunner().invoke(cli, ["verify", str(artefact)])
    assert str(corrupt.exception) == "decoder.data does not match its sha256"

    reseal(artefact)
    result = CliRunner().invoke(cli, ["verify", str(artefact), "--source", str(checkpoint)])
    assert result.exit_code == 1
    assert f"FAILED weights (decoder.onnx: {name} [64, 96]): worst difference" in result.stderr
    assert "FAILED prefill (batch 1, row 0 of length 17, past 0)" in result.stderr


@pytest.mark.parametrize("command", [[], ["build"], ["verify"], ["inspect"]])
def test_help_is_complete(command: list[str]) -> None:
    result = CliRunner().invoke(cli, [*command, "--help"])
    assert result.exit_code == 0
    if command == ["build"]:
        flags = "output name device precision pooling max-length revision tolerance force json"
        assert all(f"--{flag}" in result.stdout for flag in flags.split())


def test_inspect_prints_json() -> None:
    result = CliRunner().invoke(cli, ["inspect", str(decoder_artefact()), "--json"])
    assert json.loads(result.stdout)["cache_bytes_per_position"] == 512
