"""The numbers half of the gate for encoders: embeddings against eager PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from export.packing import MEMORY_MAP, Ids, pack, without_memory
from export.parity import Check, Tolerance, compare
from model.config import Pooling
from model.generate import embed
from model.transformer import Transformer

_RAGGED = (1, 5, 2, 64, 9, 33, 128)
# Lengths of the texts of each batch; those beyond the model's limit are cut to it.
_BATCHES = (
    (1,),
    (2,),
    (17,),
    (200,),
    (3, 1),
    (9, 129, 1),
    _RAGGED,
    (*range(1, 33),),
)
_ALONE = 1e-6  # of the vector's norm: what batch-mates may change


@dataclass(frozen=True)
class ExpectedBatch:
    """Texts, and PyTorch's embeddings `[B, d_model]` of them.

    Computed before the graph is opened, so that the model and the runtime's copy of its weights are
    never in memory together.
    """

    texts: list[Ids]
    embeddings: NDArray[np.float32]


def expect_of_encoder(
    model: Transformer, pooling: Pooling, max_input: int
) -> tuple[ExpectedBatch, ...]:
    """Batches of several sizes and lengths; the last is the longest text that the model takes."""
    batches = [
        random_texts(model.config.vocab_size, [min(length, max_input) for length in lengths])
        for lengths in (*_BATCHES, (max_input,))
    ]
    return tuple(
        ExpectedBatch(texts, reference_embeddings(model, pooling, texts)) for texts in batches
    )


class EncoderChecks:
    """The graph of an encoder beside its model."""

    def __init__(
        self,
        expected: tuple[ExpectedBatch, ...],
        session: ort.InferenceSession,
        tolerance: Tolerance,
    ) -> None:
        self._expected = expected
        self._session = session
        self._tolerance = tolerance

    def embeddings(self) -> Iterator[Check]:
        """Every batch."""
        for batch in self._expected:
            found = run_encoder(self._session, batch.texts)
            shape = _shape(batch.texts)
            yield self._tolerance.compare("embeddings", shape, found, batch.embeddings)

    def alone_and_batched(self) -> Iterator[Check]:
        """A text's vector does not depend on its batch-mates."""
        texts = self._expected[_BATCHES.index(_RAGGED)].texts
        together = run_encoder(self._session, texts)
        for text, vector in zip(texts, together, strict=True):
            alone = run_encoder(self._session, [text])[0]
            bound = _ALONE * float(np.linalg.norm(alone))
            shape = f"length {len(text)} in a batch of {len(texts)}"
            yield compare("embeddings alone and batched", shape, vector, alone, bound)


def random_texts(vocab_size: int, lengths: Sequence[int]) -> list[Ids]:
    """Ids of every kind, the same each time."""
    generator = np.random.default_rng(len(lengths))
    return [generator.integers(0, vocab_size, length) for length in lengths]


def run_encoder(session: ort.InferenceSession, texts: Sequence[Ids]) -> NDArray[np.float32]:
    """The graph's embeddings `[B, d_model]`."""
    return run_packed(session, pack(texts))


def run_packed(session: ort.InferenceSession, inputs: Mapping[str, Ids]) -> NDArray[np.float32]:
    """The same of texts that are packed; of an encoder-decoder nothing else is computed."""
    if MEMORY_MAP in {each.name for each in session.get_inputs()}:
        inputs = without_memory(inputs)
    embeddings: NDArray[np.float32] = session.run(["embeddings"], dict(inputs))[0]
    return embeddings


def reference_embeddings(
    model: Transformer, pooling: Pooling, texts: Sequence[Ids]
) -> NDArray[np.float32]:
    """Eager PyTorch's embeddings `[B, d_model]`."""
    lengths = torch.tensor([len(text) for text in texts])
    padded = torch.zeros(len(texts), int(lengths.max()), dtype=torch.int64)
    for row, text in zip(padded, texts, strict=True):
        row[: len(text)] = torch.from_numpy(text)
    embeddings: NDArray[np.float32] = embed(model, pooling, padded, lengths).numpy()
    return embeddings


def _shape(texts: Sequence[Ids]) -> str:
    return f"batch {len(texts)}, lengths {' '.join(str(len(text)) for text in texts)}"
