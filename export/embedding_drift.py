"""How far an encoder's graph of less precision has moved from the model in fp32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export.corpus import NAME, Ids, corpus_texts
from export.encoder_checks import reference_embeddings, run_encoder
from export.parity import Check
from model.config import Pooling
from model.transformer import Transformer

_SENTENCES = 1000
_LONGEST = 128  # tokens of a sentence: those of a tokenizer of single bytes are cut
_PAIRS = 5000
_BATCH = 32
_SEED = 0

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class EmbeddingBounds:
    """The least that passes.

    Attributes:
        worst_cosine, mean_cosine: between a sentence's two embeddings.
        spearman: between the cosines of pairs of sentences, before and after.
    """

    worst_cosine: float
    mean_cosine: float
    spearman: float


@dataclass(frozen=True)
class EmbeddingDrift:
    """What was found, as for the bounds."""

    worst_cosine: float
    mean_cosine: float
    spearman: float

    def checks(self, bounds: EmbeddingBounds) -> Iterator[Check]:
        """By how much less than 1 each is."""
        sentences = f"{_SENTENCES} sentences"
        for shape, found, bound in (
            (f"cosine at worst, {sentences}", self.worst_cosine, bounds.worst_cosine),
            (f"cosine on average, {sentences}", self.mean_cosine, bounds.mean_cosine),
            (f"Spearman of {_PAIRS} pairs of {sentences}", self.spearman, bounds.spearman),
        ):
            lost = 1 - found if np.isfinite(found) else None
            yield Check("drift", shape, lost, 1 - bound, NAME)


def embedding_drift(
    model: Transformer,
    pooling: Pooling,
    session: ort.InferenceSession,
    tokenizer: bytes,
    max_input: int,
) -> EmbeddingDrift:
    """Embeds the corpus's sentences with the model in fp32 and with the graph."""
    longest = min(_LONGEST, max_input)
    texts = corpus_texts(tokenizer, model.config.vocab_size, _SENTENCES, longest)
    texts.sort(key=len)  # so that the model computes little padding
    wanted, found = [], []
    for batch in _batches(texts):
        wanted.append(reference_embeddings(model, pooling, batch))
        found.append(run_encoder(session, batch))
    return compare_embeddings(np.concatenate(wanted), np.concatenate(found))


def compare_embeddings(wanted: Vectors, found: Vectors) -> EmbeddingDrift:
    """`[n, d_model]` each, of the same sentences."""
    wanted, found = _unit(wanted), _unit(found)
    cosines = (wanted * found).sum(axis=1, dtype=np.float64)
    left, right = np.random.default_rng(_SEED).integers(0, len(wanted), (2, _PAIRS))
    before = (wanted[left] * wanted[right]).sum(axis=1)
    after = (found[left] * found[right]).sum(axis=1)
    return EmbeddingDrift(float(cosines.min()), float(cosines.mean()), _spearman(before, after))


def _batches(texts: Sequence[Ids]) -> Iterator[Sequence[Ids]]:
    return (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))


def _unit(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Vectors = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


def _spearman(first: Vectors, second: Vectors) -> float:
    """The correlation of the ranks."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Vectors) -> NDArray[np.int64]:
    return values.argsort(kind="stable").argsort()
