"""The numbers half of the gate for what a decoder reads of its sources, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from export.encoder_checks import run_encoder
from export.packing import Ids, pack, with_memory
from export.parity import Check, Tolerance, compare
from export.passage import passage_rows
from export.source_run import encode_sources
from model.generate import Source, remember
from model.transformer import Transformer

# Tokens of the sources; the first is short, and stands first, in the middle and last below.
SOURCE_LENGTHS = (3, 60, 120, 240, 1)
LAYOUTS = ((0,), (4,), (2, 0), (0, 1, 2, 3, 4), (1, 2, 0, 4, 3), (3, 4, 2, 1, 0))

Memory = NDArray[np.floating]


@dataclass(frozen=True)
class ExpectedSource:
    """A source `[K]`, and PyTorch's keys and values of it, `[2 x layers, K, G x D]`."""

    ids: Ids
    memory: Memory


def passage_sources(tokenizer: bytes, vocab_size: int, max_input: int) -> list[Ids]:
    """Ordinary text of each of the lengths, cut to `max_input`; as `passage_rows`."""
    rows = passage_rows(tokenizer, vocab_size, len(SOURCE_LENGTHS), max(SOURCE_LENGTHS))
    return [row[: min(length, max_input)] for row, length in zip(rows, SOURCE_LENGTHS, strict=True)]


def remember_sources(model: Transformer, sources: Sequence[Ids]) -> Source:
    """PyTorch's memory of some sources, in one batch."""
    lengths = torch.tensor([len(source) for source in sources])
    padded = torch.zeros(len(sources), int(lengths.max()), dtype=torch.int64)
    for row, source in zip(padded, sources, strict=True):
        row[: len(source)] = torch.from_numpy(source)
    return remember(model, padded, lengths)


def expect_of_sources(
    model: Transformer, tokenizer: bytes, max_input: int
) -> tuple[ExpectedSource, ...]:
    """Asks the model; `tokenizer` is the content of tokenizer.json."""
    sources = passage_sources(tokenizer, model.config.vocab_size, max_input)
    expected = []
    for ids in sources:
        memory = remember_sources(model, [ids]).memory
        halves = [half[0].numpy() for layer in memory for half in layer]
        expected.append(ExpectedSource(ids, _by_token(halves)))
    return tuple(expected)


class SourceChecks:
    """The encoder's graph of an encoder-decoder beside its model."""

    def __init__(
        self,
        expected: tuple[ExpectedSource, ...],
        session: ort.InferenceSession,
        tolerance: Tolerance,
    ) -> None:
        self._expected = expected
        self._session = session
        # How large keys and values are is the checkpoint's choice.
        self._tolerance = replace(tolerance, relative=True)

    def memory(self) -> Iterator[Check]:
        """The keys and values of cross-attention, of every layer."""
        for layout in LAYOUTS:
            for index, found in zip(layout, self._memories(layout), strict=True):
                wanted = self._expected[index].memory
                yield self._tolerance.compare("memory", self._shape(index, layout), found, wanted)

    def alone_and_batched(self) -> Iterator[Check]:
        """A source's keys and values do not depend on its batch-mates, in any bit."""
        alone = [self._memories((index,))[0] for index in range(len(self._expected))]
        for layout in LAYOUTS:
            for index, found in zip(layout, self._memories(layout), strict=True):
                shape = self._shape(index, layout)
                yield compare("memory alone and batched", shape, found, alone[index], bound=0.0)

    def embeddings_without_sources(self) -> Iterator[Check]:
        """Whoever wants embeddings and nothing for a decoder gets the same ones."""
        sources = [source.ids for source in self._expected]
        everything = self._session.run(None, with_memory(pack(sources)))[0]
        found = run_encoder(self._session, sources)
        shape = f"batch {len(self._expected)}"
        yield compare("embeddings without sources", shape, found, everything, bound=0.0)

    def _memories(self, layout: Sequence[int]) -> list[Memory]:
        """The graph's memory of each source of a batch, as `ExpectedSource` has it."""
        sources = [self._expected[index].ids for index in layout]
        rows = encode_sources(self._session, sources)
        return [
            _by_token([half[row, :, : len(ids)] for half in rows.values()])
            for row, ids in enumerate(sources)
        ]

    def _shape(self, index: int, layout: Sequence[int]) -> str:
        return describe_source([source.ids for source in self._expected], index, layout)


def describe_source(sources: Sequence[Ids], index: int, layout: Sequence[int]) -> str:
    """One source of a layout, for a report."""
    lengths = " ".join(str(len(sources[each])) for each in layout)
    return f"source of {len(sources[index])} among {lengths}"


def _by_token(halves: Sequence[Memory]) -> Memory:
    """Keys and values `[G, K, D]` each -> `[halves, K, G x D]`: a row is all heads of a token."""
    stacked = np.stack(halves).swapaxes(1, 2)
    return stacked.reshape(*stacked.shape[:2], -1)
