"""Runs a decoder's graphs on the rows of its cache: prefill, decode, and moves between rows.

Bindings are kept, one for each batch size (decode) and each row (prefill), and every input and
output lies in a buffer that was allocated once: a step writes numbers in place and runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.artefact import Artefact
from server.buffer import HostBuffer, allocator, bind_input, bind_output
from server.limits import DecoderLimits
from server.replay import needs_replay, replay_decoder
from server.row_mover import RowMover
from server.runner import Logits
from server.scheduler import Move
from server.session import open_session
from server.slots import CacheSlots


class DecoderRunner:
    """One decoder's sessions and cache; to be used by one thread only.

    Logits that a method returns are a view of memory that the next run overwrites.

    Attributes:
        provider: the execution provider that runs the graphs.
        chunk_bytes: memory of one chunk that the prefix cache keeps.

    Raises:
        ArtefactError, DeviceError: as `open_session`.
    """

    def __init__(
        self,
        artefact: Artefact,
        limits: DecoderLimits,
        *,
        device_index: int = 0,
        threads: int = 1,
    ) -> None:
        manifest = artefact.manifest
        self._artefact = artefact
        self._decoder = open_session(
            artefact, "decoder", device_index=device_index, threads=threads
        )
        self._mover = RowMover(artefact, device_index)
        self.provider: str = self._decoder.get_providers()[0]
        self._limits = limits
        self._vocabulary_size = manifest.vocabulary_size
        allocate = allocator(manifest.device, device_index)
        self._slots = CacheSlots(manifest, "past", limits.slots, limits.capacity, allocate)
        self._chunks = CacheSlots(
            manifest, "past", limits.cached_chunks, limits.prefill_chunk, allocate
        )
        self.chunk_bytes = self._chunks.row_bytes
        most = max(limits.slots, limits.prefill_chunk)
        self._input_ids = allocate((most,), "int64")
        self._past_lengths = allocate((limits.slots,), "int32")
        self._positions = allocate((most,), "int64")
        self._positions.write(range(most))
        # Read and written by the CPU, whatever the device.
        self._total_length = HostBuffer((1,), "int32")
        self._logits = HostBuffer((most, self._vocabulary_size), "float32")
        self._decode_bindings: dict[int, Any] = {}
        self._prefill_bindings: dict[int, Any] = {}

    def prefill(self, row: int, ids: Sequence[int], start: int, *, logits: int) -> Logits:
        """Computes a chunk of one row.

        Args:
            row: the slot.
            ids: the tokens of the positions from `start` on, at most a prefill chunk.
            start: positions of the row that are valid already.
            logits: of how many of the last tokens the logits are wanted.

        Returns:
            `[logits, vocab]`.
        """
        binding = self._prefill_binding(row)
        bind_input(binding, "logit_positions", self._positions, (logits,), len(ids) - logits)
        bind_output(binding, "logits", self._logits, (logits, self._vocabulary_size))
        self._run(binding, ids, [start], start + len(ids))
        return self._logits.array[:logits]

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Logits:
        """Computes one token of each of the leading rows.

        Args:
            tokens: the next token of each row.
            lengths: the valid positions of each row; the token takes the next one.

        Returns:
            `[rows, vocab]`.
        """
        binding = self._decode_binding(len(tokens))
        self._run(binding, tokens, lengths, max(lengths) + 1)
        return self._logits.array[: len(tokens)]

    def decode_row(self, row: int, token: int, length: int) -> Logits:
        """Computes one token of one row, as `decode` does for all: `[1, vocab]`."""
        return self.prefill(row, [token], length, logits=1)

    def move(self, move: Move) -> None:
        """Copies positions of a row to another."""
        span = (move.start, move.length, move.start)
        self._mover.copy(self._slots, move.source, self._slots, move.destination, span)

    def keep_chunk(self, row: int, start: int, place: int) -> None:
        """Copies the prefill chunk of a row that begins at `start` to a place of its own."""
        end = start + self._limits.prefill_chunk
        self._mover.copy(self._slots, row, self._chunks, place, (start, end, 0))

    def restore_chunk(self, place: int, row: int, start: int) -> None:
        """Copies a prefill chunk from its place to a row, where it begins at `start`."""
        end = self._limits.prefill_chunk
        self._mover.copy(self._chunks, place, self._slots, row, (0, end, start))

    def warm_up(self) -> None:
        """Runs the largest shapes, so that the memory they need is there before it is needed.

        Raises:
            DeviceError: the device is new to the artefact and computes other numbers.
        """
        limits = self._limits
        chunk = min(limits.prefill_chunk, limits.capacity)
        self.prefill(0, [0] * chunk, limits.capacity - chunk, logits=1)
        self.decode([0] * limits.slots, [limits.capacity - 1] * limits.slots)
        if needs_replay(self._artefact):
            replay_decoder(self._artefact, self, limits)

    def probe(self, row: int) -> None:
        """Runs a small request in a row that is free; raises where the model cannot run at all."""
        self.prefill(row, [0], 0, logits=1)

    def _run(
        self, binding: Any, ids: Sequence[int], lengths: Sequence[int], total_length: int
    ) -> None:
        if total_length > self._limits.capacity:
            raise IndexError(f"{total_length} positions exceed a row of {self._limits.capacity}")
        rows = len(lengths)
        self._input_ids.write(ids)
        self._past_lengths.write(lengths)
        self._total_length.write([total_length])
        # Bound anew with every content: what a graph for CUDA reads on the CPU, ONNX Runtime copies
        # there when it is bound, and not when it runs.
        bind_input(binding, "input_ids", self._input_ids, (rows, len(ids) // rows))
        bind_input(binding, "past_lengths", self._past_lengths, (rows,))
        self._decoder.run_with_iobinding(binding)

    def _decode_binding(self, rows: int) -> Any:
        """The binding of the leading rows."""
        if rows not in self._decode_bindings:
            binding = self._bind(0, rows)
            bind_input(binding, "logit_positions", self._positions, (rows,))
            bind_output(binding, "logits", self._logits, (rows, self._vocabulary_size))
            self._decode_bindings[rows] = binding
        return self._decode_bindings[rows]

    def _prefill_binding(self, row: int) -> Any:
        """The binding of one row, but for what depends on the chunk."""
        if row not in self._prefill_bindings:
            self._prefill_bindings[row] = self._bind(row, 1)
        return self._prefill_bindings[row]

    def _bind(self, first: int, rows: int) -> Any:
        binding = self._decoder.io_binding()
        bind_input(binding, "total_sequence_length", self._total_length, (1,))
        self._slots.bind(binding, "past", "present", first, rows)
        return binding
