"""Running a decoder's graph as the server does: slots of a static cache, updated in place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from export.manifest import GraphSpec
from export.mover_graph import MOVER_NUMBERS

Ids = NDArray[np.int64]


class DecoderRun:
    """A decoder's session with `slots` rows of cache of `capacity` positions each.

    Attributes:
        caches: `{layer}.key|value` -> `[slots, G, capacity, D]`.
    """

    def __init__(
        self, session: ort.InferenceSession, graph: GraphSpec, slots: int, capacity: int
    ) -> None:
        self._session = session
        sizes = {"batch": slots, "capacity": capacity}
        self.caches = {
            spec.name.removeprefix("past."): np.zeros(
                [sizes[axis] if isinstance(axis, str) else axis for axis in spec.shape],
                dtype=spec.dtype,
            )
            for spec in graph.inputs
            if spec.name.startswith("past.")
        }

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
        binding = self._session.io_binding()
        for name, values in {
            "input_ids": np.ascontiguousarray(input_ids),
            "past_lengths": np.array(past_lengths, dtype=np.int32),
            "total_sequence_length": np.array([max(past_lengths) + sequence], dtype=np.int32),
            "logit_positions": np.array(logit_positions, dtype=np.int64),
        }.items():
            binding.bind_cpu_input(name, values)
        binding.bind_output("logits", "cpu")
        for name, cache in self.caches.items():
            bind_in_place(binding, f"past.{name}", f"present.{name}", cache[first_slot:][:batch])
        self._session.run_with_iobinding(binding)
        logits: NDArray[np.float32] = binding.get_outputs()[0].numpy()
        return logits


class MoverRun:
    """The row mover's session over the caches of a `DecoderRun`."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session

    def move(
        self,
        run: DecoderRun,
        source: int,
        destination: int,
        length: int,
        source_start: int = 0,
        destination_start: int = 0,
    ) -> None:
        """Copies `length` positions of slot `source` to slot `destination`."""
        binding = self._session.io_binding()
        numbers = (source_start, source_start + length, destination_start)
        for name, number in zip(MOVER_NUMBERS, numbers, strict=True):
            binding.bind_cpu_input(name, np.array([number], dtype=np.int64))
        for name, cache in run.caches.items():
            bind_input(binding, f"source.{name}", cache[source:][:1])
            row = cache[destination:][:1]
            bind_in_place(binding, f"destination.{name}", f"moved.{name}", row)
        self._session.run_with_iobinding(binding)


def bind_input(binding: ort.IOBinding, name: str, rows: NDArray[np.generic]) -> None:
    """Binds whole leading rows of a slab by their address; the slab must outlive the run."""
    binding.bind_input(name, "cpu", 0, rows.dtype, rows.shape, rows.ctypes.data)


def bind_in_place(
    binding: ort.IOBinding, past: str, present: str, rows: NDArray[np.generic]
) -> None:
    """Binds an input and an output to the same rows."""
    bind_input(binding, past, rows)
    binding.bind_output(present, "cpu", 0, rows.dtype, rows.shape, rows.ctypes.data)
