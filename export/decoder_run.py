"""Running a decoder's graph as the server does: slots of a static cache, updated in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export.manifest import GraphSpec
from export.mover_graph import MOVER_NUMBERS

Ids = NDArray[np.int64]
Rows = dict[str, NDArray[Any]]  # `{layer}.key|value` -> rows of a cache, `[rows, G, positions, D]`


class DecoderRun:
    """A decoder's session with `slots` rows of cache of `capacity` positions each.

    Attributes:
        caches: `[slots, G, capacity, D]` each.
        cross: what each slot reads of its source, `[slots, G, source_capacity, D]` each; empty
            where the model reads none.
        source_lengths: int32 `[slots]`, how much of it is valid.
    """

    def __init__(
        self,
        session: ort.InferenceSession,
        graph: GraphSpec,
        slots: int,
        capacity: int,
        source_capacity: int = 0,
    ) -> None:
        self._session = session
        sizes = {"batch": slots, "capacity": capacity, "source_capacity": source_capacity}
        self.caches = empty_rows(graph, "past", sizes)
        self.cross = empty_rows(graph, "cross", sizes)
        self.source_lengths = np.zeros(slots, dtype=np.int32)

    def read_source(self, slot: int, sources: Rows, row: int, length: int) -> None:
        """Gives a slot the first `length` positions of a row of what an encoder made of sources."""
        for name, cross in self.cross.items():
            cross[slot, :, :length] = sources[name][row, :, :length]
        self.source_lengths[slot] = length

    def step(
        self,
        input_ids: Ids,
        past_lengths: Sequence[int],
        first_slot: int = 0,
        logit_positions: Sequence[int] | None = None,
    ) -> NDArray[np.float32]:
        """Runs new tokens `[B, S]` of the slots from `first_slot` on.

        Args:
            past_lengths: positions that each of the rows holds already.
            logit_positions: into the flattened `B x S` axis; None for all.

        Returns:
            `[n, vocab]`, the logits at `logit_positions`.
        """
        batch, sequence = input_ids.shape
        if logit_positions is None:
            logit_positions = range(batch * sequence)
        source_lengths = self.source_lengths[first_slot:][:batch]
        numbers = {
            "input_ids": np.ascontiguousarray(input_ids),
            "past_lengths": np.array(past_lengths, dtype=np.int32),
            "total_sequence_length": np.array([max(past_lengths) + sequence], dtype=np.int32),
            "logit_positions": np.array(logit_positions, dtype=np.int64),
        }
        if self.cross:
            numbers["source_lengths"] = source_lengths
            numbers["total_source_length"] = source_lengths.max(keepdims=True)
        binding = self._session.io_binding()
        for name, values in numbers.items():
            binding.bind_cpu_input(name, values)
        binding.bind_output("logits", "cpu")
        for part, slab in (("", self.caches), ("_cross", self.cross)):
            for name, cache in slab.items():
                rows = cache[first_slot:][:batch]
                bind_in_place(
                    binding, f"{part[1:] or 'past'}.{name}", f"present{part}.{name}", rows
                )
        self._session.run_with_iobinding(binding)
        logits: NDArray[np.float32] = binding.get_outputs()[0].numpy()
        return logits


class MoverRun:
    """The row mover's session."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session

    def move(
        self,
        source: Rows,
        source_row: int,
        destination: Rows,
        destination_row: int,
        length: int,
        source_start: int = 0,
        destination_start: int = 0,
    ) -> None:
        """Copies `length` positions of a row to another, of the same rows or of others."""
        binding = self._session.io_binding()
        numbers = (source_start, source_start + length, destination_start)
        for name, number in zip(MOVER_NUMBERS, numbers, strict=True):
            binding.bind_cpu_input(name, np.array([number], dtype=np.int64))
        for name, rows in destination.items():
            bind_input(binding, f"source.{name}", source[name][source_row:][:1])
            row = rows[destination_row:][:1]
            bind_in_place(binding, f"destination.{name}", f"moved.{name}", row)
        self._session.run_with_iobinding(binding)


def empty_rows(graph: GraphSpec, part: str, sizes: Mapping[str, int]) -> Rows:
    """Zeros for each input `{part}.{layer}.key|value`, its dynamic axes of the given sizes."""
    return {
        spec.name.removeprefix(f"{part}."): np.zeros(
            [sizes[axis] if isinstance(axis, str) else axis for axis in spec.shape],
            dtype=spec.dtype,
        )
        for spec in graph.inputs
        if spec.name.startswith(f"{part}.")
    }


def bind_input(binding: ort.IOBinding, name: str, rows: NDArray[np.generic]) -> None:
    """Binds whole leading rows of a slab by their address; the slab must outlive the run."""
    binding.bind_input(name, "cpu", 0, rows.dtype, rows.shape, rows.ctypes.data)


def bind_in_place(
    binding: ort.IOBinding, past: str, present: str, rows: NDArray[np.generic]
) -> None:
    """Binds an input and an output to the same rows."""
    bind_input(binding, past, rows)
    binding.bind_output(present, "cpu", 0, rows.dtype, rows.shape, rows.ctypes.data)
