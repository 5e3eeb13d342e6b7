"""The numbers half of the gate for targets: a decoder that reads sources, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnxruntime as ort

from export.decoder_run import DecoderRun, MoverRun, Rows
from export.manifest import GraphSpec
from export.mover_checks import check_copies, check_moves
from export.parity import Check, Tolerance, compare
from export.source_checks import LAYOUTS, describe_source
from export.source_run import encode_sources
from export.target_expectations import Logits, TargetExpectations

_PASTS = (17, 0, 5, 32, 1)  # of each source's target in one step
_SPARE = 9  # positions of a slot that no row needs


@dataclass(frozen=True)
class Decoded:
    """Every target, decoded token by token with all others.

    Attributes:
        run: its slots hold the sources and the targets, in their order.
        logits: `[sources, positions, vocab]`.
        untouched: whether the sources in the slots are still the same, bit by bit.
    """

    run: DecoderRun
    logits: Logits
    untouched: bool


class TargetChecks:
    """The graphs of an encoder-decoder beside its model.

    What no source or target has written holds NaN, so that nothing of it is ever read.
    """

    def __init__(
        self,
        expected: TargetExpectations,
        encoder: ort.InferenceSession,
        decoder: ort.InferenceSession,
        mover: ort.InferenceSession,
        graph: GraphSpec,
        tolerance: Tolerance,
    ) -> None:
        self._expected = expected
        self._encoder = encoder
        self._decoder = decoder
        self._mover = MoverRun(mover)
        self._graph = graph
        self._tolerance = tolerance

    def cached_decode(self) -> Iterator[Check]:
        """Token by token with the cache gives the logits of computing everything at once."""
        decoded = self._decoded
        for row, (source, found) in enumerate(
            zip(self._expected.sources, decoded.logits, strict=True)
        ):
            shape = f"source of {len(source)}, past 0 to {len(found) - 1}"
            wanted = self._expected.logits[row]
            yield self._tolerance.compare("cached decode", shape, found, wanted)
        note = "" if decoded.untouched else "decoding has changed them"
        shape = f"{len(self._expected.sources)} sources"
        yield Check("sources in their slots", shape, 0.0 if decoded.untouched else None, 0.0, note)

    def decode(self) -> Iterator[Check]:
        """One token for rows of several sources and past lengths, together and each alone."""
        for layout in LAYOUTS:
            run = self._arranged(layout)
            pasts = [self._past(row) for row in layout]
            tokens = self._expected.targets[list(layout), pasts][:, None]
            together = run.step(tokens, pasts)
            for slot, (row, past) in enumerate(zip(layout, pasts, strict=True)):
                shape = f"{describe_source(self._expected.sources, row, layout)}, past {past}"
                wanted = self._expected.logits[row, past]
                yield self._tolerance.compare("decode", shape, together[slot], wanted)
                alone = run.step(tokens[slot : slot + 1], [past], slot)[0]
                yield compare("decode alone and batched", shape, together[slot], alone, bound=0.0)

    def capacity(self) -> Iterator[Check]:
        """The size of a slot and what lies in it beyond a text change no bit."""
        every = range(len(self._expected.sources))
        pasts = [self._past(row) for row in every]
        tokens = self._expected.targets[every, pasts][:, None]
        wanted = self._arranged(every).step(tokens, pasts)
        exact = self._copy(every, self._run(len(every), spare=0, unwritten=0.0))
        shape = f"{len(every)} rows, {_SPARE} positions more or less"
        found = exact.step(tokens, pasts)
        yield compare("decode in a larger slot", shape, found, wanted, bound=0.0)

    def greedy(self) -> Iterator[Check]:
        """The same tokens as the oracle over many steps."""
        expected = self._expected
        wanted, source = expected.greedy_tokens, expected.greedy_source
        run = self._run(1)
        run.read_source(0, encode_sources(self._encoder, [source]), 0, len(source))
        tokens = [int(expected.targets[0, 0])]
        for past in range(len(wanted)):
            tokens.append(int(run.step(np.array([tokens[-1:]]), [past])[0].argmax()))
        shape = f"{len(wanted)} tokens, source of {len(source)}"
        yield self._tolerance.compare_tokens(shape, tokens[1:], wanted, expected.greedy_logits)

    def move(self) -> Iterator[Check]:
        """A moved span is exact: of a target, and of a source from where it was encoded."""
        run = self._run(slots=3)
        yield from check_moves(self._mover, run.caches)
        sources = encode_sources(self._encoder, self._expected.sources[:3])
        yield from check_copies(self._mover, sources, run.cross)

    @cached_property
    def _decoded(self) -> Decoded:
        sources, targets = self._expected.sources, self._expected.targets
        run = self._run(len(sources))
        encoded = encode_sources(self._encoder, sources)
        for slot, source in enumerate(sources):
            run.read_source(slot, encoded, slot, len(source))
        before, untouched = _bytes(run.cross), True
        found = []
        for past in range(targets.shape[1]):
            found.append(run.step(targets[:, past : past + 1], [past] * len(sources)))
            untouched &= _bytes(run.cross) == before  # what is swapped twice is as it was
        return Decoded(run, np.stack(found, axis=1), untouched)

    def _arranged(self, layout: Sequence[int]) -> DecoderRun:
        """Slots with the sources and targets of a layout."""
        return self._copy(layout, self._run(len(layout)))

    def _copy(self, layout: Sequence[int], run: DecoderRun) -> DecoderRun:
        decoded = self._decoded.run
        for slot, row in enumerate(layout):
            length = int(decoded.source_lengths[row])
            run.read_source(slot, decoded.cross, row, length)
            for name, cache in run.caches.items():
                past = self._past(row)
                cache[slot, :, :past] = decoded.caches[name][row, :, :past]
        return run

    def _run(self, slots: int, spare: int = _SPARE, unwritten: float = np.nan) -> DecoderRun:
        longest = max(len(source) for source in self._expected.sources)
        positions = max(self._expected.targets.shape[1], len(self._expected.greedy_tokens))
        run = DecoderRun(self._decoder, self._graph, slots, positions + spare, longest + spare)
        for cache in (*run.caches.values(), *run.cross.values()):
            cache.fill(unwritten)
        return run

    def _past(self, row: int) -> int:
        return min(_PASTS[row], int(self._expected.targets.shape[1]) - 1)


def _bytes(rows: Rows) -> list[bytes]:
    return [cache.tobytes() for cache in rows.values()]
