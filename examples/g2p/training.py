"""Training: epochs of batches, a moving average of the weights, and a state to go on from."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from examples.g2p.batches import SILENCE, Batch, pairs, shuffled_batches
from examples.g2p.dropout import replace_dropout
from examples.g2p.error_rates import error_rates
from examples.g2p.objective import surprise
from examples.g2p.pronouncer import Pronouncer
from examples.g2p.recipe import Recipe
from examples.g2p.split import Split
from examples.g2p.vocabulary import phone_tokenizer, spelling_tokenizer
from model.transformer import Transformer

_SILENCES = 64  # of the pairs of an epoch


class TrainingError(Exception):
    """A training that cannot start or go on; the message says why and what to do."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch brought; the validation is of the averaged weights.

    Attributes:
        training_surprise: with dropout and label smoothing, in nats a phone.
        validation_surprise: without, in nats a phone.
        phone_error_rate, word_error_rate: of the validation words, without stress.
    """

    number: int
    seconds: float
    training_surprise: float
    validation_surprise: float
    phone_error_rate: float
    word_error_rate: float


class Training:
    """A model in training.

    Its state after an epoch, saved and loaded, goes on exactly as if it had never stopped (on the
    same machine, with as many threads).

    Attributes:
        average: the model with the averaged weights, which is the one to keep.
        history: the epochs so far.
    """

    def __init__(self, recipe: Recipe, words: Split) -> None:
        self.recipe = recipe
        self.words = words
        self.history: list[Epoch] = []
        self._pairs = [*pairs(words.training), *[SILENCE] * _SILENCES]
        torch.manual_seed(recipe.seed)
        self._model = new_model(recipe).train()
        replace_dropout(self._model)
        average = get_ema_multi_avg_fn(recipe.average_decay)  # type: ignore[no-untyped-call]
        self._averaged = AveragedModel(self._model, multi_avg_fn=average).eval()
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            betas=recipe.betas,
            weight_decay=recipe.weight_decay,
            fused=True,
        )

    @property
    def average(self) -> Transformer:
        return cast("Transformer", self._averaged.module)

    @property
    def pair_count(self) -> int:
        return len(self._pairs)

    @property
    def batches_per_epoch(self) -> int:
        return math.ceil(self.pair_count / self.recipe.words_per_batch)

    @property
    def finished(self) -> bool:
        return len(self.history) >= self.recipe.epochs

    def run_epoch(self, on_batch: Callable[[float], None] = lambda _: None) -> Epoch:
        """Trains for one epoch and validates; `on_batch` is told the surprise of each batch."""
        started = time.monotonic()
        number = len(self.history)
        seed = f"{self.recipe.seed} {number}"  # nothing that is drawn depends on what was before
        torch.manual_seed(random.Random(seed).getrandbits(63))
        total = 0.0
        for index, batch in enumerate(
            shuffled_batches(self._pairs, self.recipe.words_per_batch, seed)
        ):
            surprised = self._step(batch, number + index / self.batches_per_epoch)
            total += surprised
            on_batch(surprised)
        epoch = self._validate(number + 1, started, total / self.batches_per_epoch)
        self.history.append(epoch)
        return epoch

    def save(self, path: Path) -> None:
        """Writes the state, or leaves the one that is there."""
        state = {
            "recipe": asdict(self.recipe),
            "history": [asdict(epoch) for epoch in self.history],
            "model": self._model.state_dict(),
            "averaged": self._averaged.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_suffix(".new")
        torch.save(state, staged)
        os.replace(staged, path)

    @classmethod
    def load(cls, path: Path, words: Split) -> Self:
        """Goes on from what `save` wrote.

        Raises:
            TrainingError: there is no such file.
        """
        if not path.exists():
            raise TrainingError(f"{path} does not exist: there is no training to go on with")
        state: dict[str, Any] = torch.load(path, weights_only=True)
        training = cls(Recipe(**state["recipe"]), words)
        training.history = [Epoch(**epoch) for epoch in state["history"]]
        training._model.load_state_dict(state["model"])
        training._averaged.load_state_dict(state["averaged"])
        training._optimizer.load_state_dict(state["optimizer"])
        return training

    def _step(self, batch: Batch, epochs_done: float) -> float:
        """One step of the optimiser; the surprise before it."""
        for group in self._optimizer.param_groups:
            group["lr"] = self.recipe.rate(epochs_done / self.recipe.epochs)
        self._optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = surprise(self._model, batch, self.recipe.label_smoothing)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self._model.parameters(), self.recipe.clip)
        self._optimizer.step()
        self._averaged.update_parameters(self._model)
        return loss.item()

    def _validate(self, number: int, started: float, training_surprise: float) -> Epoch:
        words = self.words.validation
        pronouncer = Pronouncer(self.average, spelling_tokenizer(), phone_tokenizer())
        rates = error_rates(pronouncer([entry.word for entry in words]), words, stress=False)
        with torch.inference_mode():
            surprised = surprise(self.average, Batch.of(pairs(words)))
        return Epoch(
            number=number,
            seconds=time.monotonic() - started,
            training_surprise=training_surprise,
            validation_surprise=surprised.item(),
            phone_error_rate=rates.phones,
            word_error_rate=rates.words,
        )


def new_model(recipe: Recipe) -> Transformer:
    """The model before its first step, random (Glorot and Bengio 2010 for every projection)."""
    model = Transformer(recipe.transformer())
    for name, parameter in model.named_parameters():
        if "embedding" in name:  # the embedding is scaled up, and is the head as well
            nn.init.normal_(parameter, std=recipe.d_model**-0.5)
        elif parameter.ndim == 2:
            nn.init.xavier_uniform_(parameter)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model
