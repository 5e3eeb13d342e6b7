"""How far a decoder's graph of less precision has moved from the model in fp32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from export.corpus import NAME, Ids, corpus_tokens
from export.decoder_run import DecoderRun
from export.manifest import GraphSpec
from export.parity import Check
from model.cache import Cache
from model.generate import logits
from model.transformer import Transformer

_TOKENS = 4096
_WINDOW = 1024  # tokens that a text may look back on
_CHUNK = 256  # tokens whose logits are in memory at a time
_TEXT = f"{_TOKENS} tokens in windows of at most {_WINDOW}"

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class GenerationBounds:
    """What passes.

    Attributes:
        perplexity: the most by which it may grow, as a part of the model's.
        agreement: the least part of all tokens after which both find the same one likeliest.
    """

    perplexity: float
    agreement: float


@dataclass(frozen=True)
class GenerationDrift:
    """What was found.

    Attributes:
        perplexity, wanted_perplexity: of the graph, and of the model in fp32.
        agreement: the part of all tokens after which both find the same one likeliest.
        text: of what.
    """

    perplexity: float
    wanted_perplexity: float
    agreement: float
    text: str = _TEXT

    def checks(self, bounds: GenerationBounds) -> Iterator[Check]:
        """How much perplexity has grown, and how often the likeliest token is another."""
        growth = self.perplexity / self.wanted_perplexity - 1
        yield Check(
            "drift",
            f"growth of perplexity, {self.text}",
            growth if math.isfinite(growth) else None,
            bounds.perplexity,
            f"{self.perplexity:.2f} instead of {self.wanted_perplexity:.2f} on {NAME}",
        )
        yield Check(
            "drift",
            f"part where another token is likeliest, {self.text}",
            1 - self.agreement,
            1 - bounds.agreement,
            NAME,
        )


@dataclass
class Tally:
    """What is summed over the tokens of a text: losses, and how often both find the same likeliest.

    Attributes:
        loss, wanted_loss: sums of `-log p(token)`, of the graph and of the model in fp32.
    """

    loss: float = 0.0
    wanted_loss: float = 0.0
    agreeing: int = 0
    count: int = 0

    def add(self, found: Logits, wanted: Logits, targets: Ids) -> None:
        """Logits `[S, V]` of both, and the tokens `[S]` that follow in the text."""
        self.loss += _loss(found, targets)
        self.wanted_loss += _loss(wanted, targets)
        self.agreeing += int((found.argmax(axis=1) == wanted.argmax(axis=1)).sum())
        self.count += len(targets)

    def drift(self, text: str = _TEXT) -> GenerationDrift:
        """What at least one token shows."""
        count = self.count
        perplexities = _exp(self.loss / count), _exp(self.wanted_loss / count)
        return GenerationDrift(*perplexities, self.agreeing / count, text)


def generation_drift(
    model: Transformer,
    session: ort.InferenceSession,
    graph: GraphSpec,
    tokenizer: bytes,
    max_positions: int,
) -> GenerationDrift:
    """Runs the corpus through the model in fp32 and through the graph."""
    tokens = corpus_tokens(tokenizer, model.config.decoder_vocab_size, _TOKENS)
    window = min(_WINDOW, max_positions)
    tally = Tally()
    for start in range(0, len(tokens), window):
        text = tokens[start : start + window]
        run = DecoderRun(session, graph, slots=1, capacity=window)
        past: Cache | None = None
        for first in range(0, len(text) - 1, _CHUNK):
            ids, targets = text[:-1][first:][:_CHUNK], text[1:][first:][:_CHUNK]
            found = run.step(ids[None], [first])
            scores, past = logits(model, torch.from_numpy(ids)[None], past)
            tally.add(found, scores[0].numpy(), targets)
    return tally.drift()


def _loss(scores: Logits, targets: Ids) -> float:
    """The sum of `-log p(target)` over the rows of logits `[S, V]`."""
    largest = scores.max(axis=1)
    sums = np.exp(scores - largest[:, None]).sum(axis=1, dtype=np.float64)
    chosen = scores[np.arange(len(targets)), targets]
    return float((np.log(sums) + largest - chosen).sum())


def _exp(mean_loss: float) -> float:
    """Infinity beyond what a number can be."""
    return math.exp(mean_loss) if mean_loss < 700 else math.inf
