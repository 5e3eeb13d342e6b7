"""Training: that it learns, and goes on exactly where it stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from examples.g2p.pronouncer import Pronouncer
from examples.g2p.publication import as_checkpoint
from examples.g2p.training import Training, TrainingError, new_model
from tests.examples.g2p.words import TINY, split_syllables

pytestmark = pytest.mark.xdist_group("g2p")  # they share one trained model

WORDS = split_syllables()


def assert_same(first: Training, second: Training) -> None:
    for part in ("_model", "_averaged"):
        tensors = getattr(second, part).state_dict()
        for name, tensor in getattr(first, part).state_dict().items():
            assert torch.equal(tensor, tensors[name]), name
    assert [replace(epoch, seconds=0.0) for epoch in first.history] == [
        replace(epoch, seconds=0.0) for epoch in second.history
    ]


def test_it_learns_what_letters_sound_like(trained: Training) -> None:
    first, last = trained.history[0], trained.history[-1]
    assert last.training_surprise < first.training_surprise / 2
    assert last.validation_surprise < 0.2
    assert last.word_error_rate <= 0.05
    pronounce = Pronouncer.of(as_checkpoint(trained.average))
    assert pronounce(["", "123"]) == [(), ()]


def test_it_goes_on_exactly_where_it_stopped(tmp_path: Path) -> None:
    straight, stopped = (Training(replace(TINY, epochs=3), WORDS) for _ in range(2))
    for _ in range(3):
        straight.run_epoch()

    stopped.run_epoch()
    stopped.save(tmp_path / "state.pt")
    torch.manual_seed(99)  # something else runs in between
    resumed = Training.load(tmp_path / "state.pt", WORDS)
    assert_same(resumed, stopped)
    while not resumed.finished:
        resumed.run_epoch()
    assert_same(resumed, straight)


def test_a_seed_gives_one_model_and_another_seed_another() -> None:
    first, again, other = (
        Training(replace(TINY, seed=seed, epochs=1), WORDS) for seed in (1, 1, 2)
    )
    for training in (first, again, other):
        training.run_epoch()
    assert_same(first, again)
    with pytest.raises(AssertionError):
        assert_same(first, other)


def test_a_save_that_fails_leaves_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.pt"
    training = Training(TINY, WORDS)
    training.save(path)
    before = path.read_bytes()

    def fail(state: Any, file: Path) -> None:
        file.write_bytes(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr("torch.save", fail)
    with pytest.raises(OSError, match="full"):
        training.save(path)
    assert path.read_bytes() == before


def test_no_state_no_training(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"state\.pt does not exist"):
        Training.load(tmp_path / "state.pt", WORDS)


def test_the_average_follows_the_weights_slowly() -> None:
    training = Training(replace(TINY, average_decay=0.9), WORDS)
    training.run_epoch()
    behind = [
        (average - newest).abs().max()
        for average, newest in zip(
            training.average.parameters(), training._model.parameters(), strict=True
        )
    ]
    assert 0 < max(behind) < 0.1
    assert not training.average.training


def test_first_logits_are_small() -> None:
    """A scaled embedding that is the head as well must not begin with certainty."""
    torch.manual_seed(0)
    model = new_model(TINY)
    states = torch.nn.functional.layer_norm(torch.randn(100, TINY.d_model), (TINY.d_model,))
    with torch.inference_mode():
        assert 0.5 < model.decoder.head(states).std() < 2.0
