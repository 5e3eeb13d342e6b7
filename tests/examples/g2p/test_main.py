"""The command line, over a small dictionary."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from examples.g2p.__main__ import main
from examples.g2p.publication import publish
from examples.g2p.training import Training
from tests.examples.g2p.words import TINY, split_syllables

pytestmark = pytest.mark.xdist_group("g2p")  # they share one trained model


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small dictionary and a small model."""
    monkeypatch.setattr("examples.g2p.__main__._words", split_syllables)
    monkeypatch.setattr("examples.g2p.__main__.Recipe", partial(replace, TINY))


def test_train_resume_publish(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = ["--work", str(tmp_path / "work")]
    assert main(["train", *work, "--epochs", "1"]) == 0
    assert "epoch 1 of 1: training" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "work").iterdir()} == {"state.pt", "training.png"}

    assert main(["train", *work]) == 1
    assert "--resume goes on with it" in capsys.readouterr().err
    assert main(["train", *work, "--resume", "--epochs", "3"]) == 2
    assert main(["train", *work, "--resume"]) == 0

    assert main(["publish", *work, "--output", str(tmp_path / "asset")]) == 1
    assert "are wrong; at most" in capsys.readouterr().err
    assert not (tmp_path / "asset").exists()


def test_evaluate(trained: Training, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published = publish(trained, tmp_path)
    assert main(["evaluate", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == published.to_json()
    assert main(["evaluate", str(tmp_path)]) == 0
    assert "without relatives" in capsys.readouterr().out


def test_what_cannot_be_read_or_reached_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(tmp_path)]) == 1
    assert "error: " in capsys.readouterr().err
    assert main(["publish", "--work", str(tmp_path)]) == 1
    assert "state.pt does not exist" in capsys.readouterr().err


def test_an_interruption_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("examples.g2p.__main__._words", interrupt)
    assert main(["train", "--work", str(tmp_path)]) == 130
