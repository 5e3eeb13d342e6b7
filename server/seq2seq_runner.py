"""Runs an encoder-decoder's graphs: sources in batches, targets a token of every row at a time.

A row of the cache has two parts: the keys and values of the target so far, to which a step adds a
position, and those of the source, its *memory*, which are copied there once and only read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.artefact import Artefact
from server.buffer import HostBuffer, allocator, bind_input, bind_output
from server.encoded_sources import EncodedSources
from server.limits import SOURCE_PLACE, DecoderLimits
from server.packing import pack
from server.replay import needs_replay, replay_targets
from server.row_mover import RowMover, Rows
from server.runner import Logits
from server.scheduler import Move
from server.session import open_session
from server.shared_session import SharedSession
from server.slots import CacheSlots


class Seq2seqRunner:
    """One encoder-decoder's sessions and cache; to be used by one thread only.

    Logits that a method returns are a view of memory that the next run overwrites.

    Args:
        encoder: the encoder's session, where something else runs it, too; None opens one.

    Attributes:
        provider: the execution provider that runs the graphs.
        place_bytes: of a place for kept sources.

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
        encoder: SharedSession | None = None,
    ) -> None:
        manifest = artefact.manifest
        encoder = encoder or SharedSession(
            artefact, "encoder", device_index=device_index, threads=threads
        )
        self._encoder = encoder.open()
        self._decoder = open_session(
            artefact, "decoder", device_index=device_index, threads=threads
        )
        self._mover = RowMover(artefact, device_index)
        self.provider: str = self._decoder.get_providers()[0]
        self._artefact = artefact
        self._manifest = manifest
        self._limits = limits
        self._allocate = allocator(manifest.device, device_index)
        self._allocate_cache()
        self._allocate_inputs()
        self._encode_binding = self._encoder.io_binding()
        self._decode_bindings: dict[tuple[int, int], Any] = {}

    def encode(self, sources: Sequence[Sequence[int]]) -> None:
        """Computes the memories of sources, which are there until the next call.

        Args:
            sources: the ids of each, at least one; padded to the longest, they are no more than
                `DecoderLimits.encoded_at_once` tokens.
        """
        packed = pack(sources)
        for name, values in packed.feeds(packed.pad_map).items():
            self._encode_binding.bind_cpu_input(name, values)
        self._encoded.bind_batch(self._encode_binding, *packed.pad_map.shape)
        self._encoder.run_with_iobinding(self._encode_binding)
        self._encoded_lengths: list[int] = packed.lengths.tolist()

    def place(self, index: int, row: int) -> None:
        """Copies the memory of a source to a row, by its index in what was encoded last."""
        self._remember(self._encoded, index, self._encoded_lengths[index], row)

    def keep_source(self, row: int, places: Sequence[int]) -> None:
        """Copies the memory of a row to places, `SOURCE_PLACE` tokens each but for the last."""
        length = self._source_lengths[row]
        for place, start in zip(places, range(0, length, SOURCE_PLACE), strict=True):
            span = (start, min(start + SOURCE_PLACE, length), 0)
            self._mover.copy(self._memories, row, self._kept, place, span)

    def restore_source(self, places: Sequence[int], length: int, row: int) -> None:
        """Copies a memory of that many tokens from its places to a row."""
        for place, start in zip(places, range(0, length, SOURCE_PLACE), strict=True):
            span = (0, min(SOURCE_PLACE, length - start), start)
            self._mover.copy(self._kept, place, self._memories, row, span)
        self._source_lengths[row] = length

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Logits:
        """Computes one token of each of the leading rows, as `DecoderRunner.decode`."""
        return self._compute(0, tokens, lengths)

    def decode_row(self, row: int, token: int, length: int) -> Logits:
        """Computes one token of one row, as `decode` does for all: `[1, vocab]`."""
        return self._compute(row, [token], [length])

    def move(self, move: Move) -> None:
        """Copies positions of a row to another, and its memory where that is to go along."""
        source, destination = move.source, move.destination
        span = (move.start, move.length, move.start)
        self._mover.copy(self._targets, source, self._targets, destination, span)
        if move.memory:
            self._remember(self._memories, source, self._source_lengths[source], destination)

    def warm_up(self) -> None:
        """Runs the largest shapes, so that the memory they need is there before it is needed.

        Raises:
            DeviceError: the device is new to the artefact and computes other numbers.
        """
        limits = self._limits
        self.encode([[0]] * limits.encoded_at_once)
        self.encode([[0] * limits.source_capacity])
        for row in range(limits.slots):
            self.place(0, row)
        self.decode([0] * limits.slots, [limits.capacity - 1] * limits.slots)
        if needs_replay(self._artefact):
            replay_targets(self._artefact, self, limits)

    def probe(self, row: int) -> None:
        """Runs a small request in a row that is free; raises where the model cannot run at all."""
        self.encode([[0]])
        self.place(0, row)
        self.decode_row(row, 0, 0)

    def _allocate_cache(self) -> None:
        manifest, limits, allocate = self._manifest, self._limits, self._allocate
        self._targets = CacheSlots(manifest, "past", limits.slots, limits.capacity, allocate)
        self._memories = CacheSlots(
            manifest, "cross", limits.slots, limits.source_capacity, allocate
        )
        self._source_lengths = [0] * limits.slots
        self._kept = CacheSlots(manifest, "cross", limits.source_places, SOURCE_PLACE, allocate)
        self.place_bytes = self._kept.row_bytes
        self._encoded = EncodedSources(manifest, limits.encoded_at_once, allocate)

    def _allocate_inputs(self) -> None:
        slots, allocate = self._limits.slots, self._allocate
        self._input_ids = allocate((slots,), "int64")
        self._past_lengths = allocate((slots,), "int32")
        self._memory_lengths = allocate((slots,), "int32")
        self._positions = allocate((slots,), "int64")
        self._positions.write(range(slots))
        # Read and written by the CPU, whatever the device.
        self._total_length = HostBuffer((1,), "int32")
        self._total_source_length = HostBuffer((1,), "int32")
        self._logits = HostBuffer((slots, self._manifest.vocabulary_size), "float32")

    def _remember(self, rows: Rows, index: int, length: int, row: int) -> None:
        """Copies a memory of that length to a row."""
        self._mover.copy(rows, index, self._memories, row, (0, length, 0))
        self._source_lengths[row] = length

    def _compute(self, first: int, tokens: Sequence[int], lengths: Sequence[int]) -> Logits:
        """Computes one token of each of the rows from `first` on."""
        rows, total_length = len(tokens), max(lengths) + 1
        if total_length > self._limits.capacity:
            raise IndexError(f"{total_length} positions exceed a row of {self._limits.capacity}")
        source_lengths = self._source_lengths[first : first + rows]
        self._input_ids.write(tokens)
        self._past_lengths.write(lengths)
        self._memory_lengths.write(source_lengths)
        self._total_length.write([total_length])
        self._total_source_length.write([max(source_lengths)])
        binding = self._decode_binding(first, rows)
        # Bound anew with every content, as `DecoderRunner` does.
        bind_input(binding, "input_ids", self._input_ids, (rows, 1))
        bind_input(binding, "past_lengths", self._past_lengths, (rows,))
        bind_input(binding, "source_lengths", self._memory_lengths, (rows,))
        self._decoder.run_with_iobinding(binding)
        return self._logits.array[:rows]

    def _decode_binding(self, first: int, rows: int) -> Any:
        """The binding of so many rows from `first` on, but for the inputs of a step."""
        if (first, rows) not in self._decode_bindings:
            binding = self._decoder.io_binding()
            bind_input(binding, "total_sequence_length", self._total_length, (1,))
            bind_input(binding, "total_source_length", self._total_source_length, (1,))
            bind_input(binding, "logit_positions", self._positions, (rows,))
            bind_output(binding, "logits", self._logits, (rows, self._manifest.vocabulary_size))
            self._targets.bind(binding, "past", "present", first, rows)
            self._memories.bind(binding, "cross", "present_cross", first, rows)
            self._decode_bindings[first, rows] = binding
        return self._decode_bindings[first, rows]
