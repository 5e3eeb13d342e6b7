"""Publishing a trained model: a native checkpoint in half precision, measured, with its card."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import torch

from examples.g2p.evaluation import Evaluation, compare
from examples.g2p.loss_curve import draw
from examples.g2p.model_card import model_card
from examples.g2p.pronouncer import Pronouncer
from examples.g2p.recipe import MAX_POSITIONS
from examples.g2p.training import Training, TrainingError
from examples.g2p.vocabulary import END_ID, START_ID, phone_tokenizer, spelling_tokenizer
from model.checkpoint import Checkpoint
from model.checkpoints.native import save_native
from model.transformer import Transformer

MOST_PHONE_ERRORS, MOST_WORD_ERRORS = 0.07, 0.28  # without stress
STORED = torch.float16
_SAMPLES = ("worcestershire", "wojciechowska", "nguyen's", "Brontë", "xylotropic", "grapheme")


def publish(training: Training, directory: Path) -> Evaluation:
    """Writes the averaged model and what was measured of it, as it is stored.

    Raises:
        TrainingError: the training has not ended, or the model makes too many errors; nothing is
            written then.
    """
    if not training.finished:
        done, epochs = len(training.history), training.recipe.epochs
        raise TrainingError(f"{done} of {epochs} epochs are done: go on with train --resume")
    exact = as_checkpoint(training.average)
    stored = replace(
        exact, tensors={name: tensor.to(STORED).float() for name, tensor in exact.tensors.items()}
    )
    words = [entry.word for entry in training.words.test]
    pronounce = Pronouncer.of(stored)
    answers = pronounce(words)
    evaluation = compare(answers, training.words)
    _require(evaluation)
    pairs = zip(Pronouncer.of(exact)(words), answers, strict=True)
    changed = sum(before != after for before, after in pairs)
    save_native(directory, stored, STORED)
    draw(training.history, directory / "training.png")
    (directory / "metrics.json").write_text(json.dumps(evaluation.to_json(), indent=2) + "\n")
    samples = dict(zip(_SAMPLES, pronounce(_SAMPLES), strict=True))
    (directory / "README.md").write_text(model_card(training, evaluation, samples, changed))
    return evaluation


def as_checkpoint(model: Transformer) -> Checkpoint:
    """The model with its tokenizers, for inference: it drops nothing out."""
    tensors = {name: tensor.detach() for name, tensor in model.named_parameters()}
    return Checkpoint(
        family="native",
        config=replace(model.config, dropout=0.0),
        tensors=tensors,
        sources={name: (name,) for name in tensors},
        tokenizer_json=spelling_tokenizer().to_str().encode(),
        target_tokenizer_json=phone_tokenizer().to_str().encode(),
        max_input=MAX_POSITIONS,
        decoder_start_id=START_ID,
        eos_ids=(END_ID,),
        generation={"max_new_tokens": MAX_POSITIONS - 1},  # the start takes a position
    )


def _require(evaluation: Evaluation) -> None:
    rates = evaluation.all.without_stress
    if rates.phones > MOST_PHONE_ERRORS or rates.words > MOST_WORD_ERRORS:
        raise TrainingError(
            f"without stress {rates.phones:.2%} of the phones and {rates.words:.2%} of the words "
            f"are wrong; at most {MOST_PHONE_ERRORS:.0%} and {MOST_WORD_ERRORS:.0%} may be"
        )
