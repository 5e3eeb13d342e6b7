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
        cosine: the least between the two rows of logits of a token; None where rounding is so
            coarse that the two above say all that there is to say.
        difference: the most by which a logit may differ; None likewise.
    """

    perplexity: float
    agreement: float
    cosine: float | None = None
    difference: float | None = None


@dataclass(frozen=True)
class GenerationDrift:
    """What was found.

    Attributes:
        perplexity, wanted_perplexity: of the graph, and of the model in fp32.
        agreement: the part of all tokens after which both find the same one likeliest.
        text: of what.
        worst_cosine: between the two rows of logits of a token.
        largest_difference: of any logit.
    """

    perplexity: float
    wanted_perplexity: float
    agreement: float
    text: str = _TEXT
    worst_cosine: float = 1.0
    largest_difference: float = 0.0

    def checks(self, bounds: GenerationBounds) -> Iterator[Check]:
        """How much perplexity has grown, how often the likeliest token is another, and how far
        logits are apart, where that has bounds."""
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
        for name, found, bound in (
            ("cosine of logits at worst", 1 - self.worst_cosine, _lost(bounds.cosine)),
            ("largest difference of a logit", self.largest_difference, bounds.difference),
        ):
            if bound is not None:
                difference = found if math.isfinite(found) else None
                yield Check("drift", f"{name}, {self.text}", difference, bound, NAME)


@dataclass
class Tally:
    """What is kept of the tokens of a text: losses, how often both find the same likeliest, and the
    rows of logits that are the furthest apart.

    Attributes:
        loss, wanted_loss: sums of `-log p(token)`, of the graph and of the model in fp32.
    """

    loss: float = 0.0
    wanted_loss: float = 0.0
    agreeing: int = 0
    count: int = 0
    worst_cosine: float = 1.0
    largest_difference: float = 0.0

    def add(self, found: Logits, wanted: Logits, targets: Ids) -> None:
        """Logits `[S, V]` of both, and the tokens `[S]` that follow in the text."""
        self.loss += _loss(found, targets)
        self.wanted_loss += _loss(wanted, targets)
        self.agreeing += int((found.argmax(axis=1) == wanted.argmax(axis=1)).sum())
        self.count += len(targets)
        differences = found - wanted
        np.abs(differences, out=differences)
        self.largest_difference = float(differences.max(initial=self.largest_difference))
        self.worst_cosine = float(_cosines(found, wanted).min(initial=self.worst_cosine))

    def drift(self, text: str = _TEXT) -> GenerationDrift:
        """What at least one token shows."""
        count = self.count
        perplexities = _exp(self.loss / count), _exp(self.wanted_loss / count)
        return GenerationDrift(
            *perplexities,
            self.agreeing / count,
            text,
            self.worst_cosine,
            self.largest_difference,
        )


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


def _cosines(found: Logits, wanted: Logits) -> NDArray[np.float64]:
    """Of each row `[S, V]`; 1 for two rows of zeros."""
    together, one, other = (
        np.einsum("sv,sv->s", left, right, dtype=np.float64)
        for left, right in ((found, wanted), (found, found), (wanted, wanted))
    )
    tiny = np.finfo(np.float64).tiny
    cosines: NDArray[np.float64] = (together + tiny) / (np.sqrt(one * other) + tiny)
    return cosines


def _lost(cosine: float | None) -> float | None:
    return None if cosine is None else 1 - cosine


def _exp(mean_loss: float) -> float:
    """Infinity beyond what a number can be."""
    return math.exp(mean_loss) if mean_loss < 700 else math.inf
