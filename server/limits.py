"""How much the engines take at once, and how the cache is sized to the memory there is.

Everything is decided at start and announced; nothing here grows with traffic.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from export.manifest import Device, Manifest
from server.errors import InputTooLong, InvalidInput

DEFAULT_SLOTS = 16
DEFAULT_MAX_QUEUE = 512
DEFAULT_MAX_REQUEST_SECONDS = 600.0
CACHE_SHARE = 0.25  # of the memory that is left, for the caches of all models together
PREFIX_CACHE_SHARE = 0.25  # of the bytes of the caches, beside them
SOURCE_PLACE = 16  # tokens; a kept source takes whole places, and half a one is waste on average
_FEWEST_POSITIONS = 2  # of a prompt, or a target's start, and one that follows
_QUEUED_CAPACITIES = 64  # the queue holds this many times what runs at once, in tokens
_PREFILL_CHUNK = {Device.CPU: 64, Device.CUDA: 512}
_BATCH_TOKENS = {Device.CPU: 2_048, Device.CUDA: 16_384}


class LimitError(ValueError):
    """Limits that cannot be kept; the message names the flag to change."""


@dataclass(frozen=True)
class EncoderLimits:
    """What one encoder takes.

    Attributes:
        max_input: tokens of one text.
        max_batch_tokens: cells of one batch, padding counted; a longer text is a batch alone.
        max_queue: calls that may wait.
        max_queue_tokens: tokens that may wait; an empty queue takes any call.
        max_wait_seconds: how long the first text of a batch waits for others.
        max_request_seconds: the most that any call may take.
    """

    max_input: int
    max_batch_tokens: int
    max_queue: int
    max_queue_tokens: int
    max_wait_seconds: float
    max_request_seconds: float

    def check(self, lengths: Sequence[int]) -> None:
        """Refuses a call that could never run, by the tokens of its texts.

        Raises:
            InvalidInput: there is no text, or one without tokens.
            InputTooLong: a text exceeds the model's limit.
        """
        if not lengths:
            raise InvalidInput("inputs is empty; it needs at least one")
        for index, length in enumerate(lengths):
            check_length(f"inputs[{index}]", length, 1, self.max_input)


@dataclass(frozen=True)
class DecoderLimits:
    """What one decoder takes.

    Attributes:
        slots: completions that are generated at the same time.
        capacity: positions of one slot, prompt and completion together.
        prefill_chunk: tokens of a prompt, or of sources with their padding, that are computed at
            once; a longer source is computed alone.
        max_queue: requests that may wait.
        max_queue_tokens: tokens of prompts and sources that may wait; an empty queue takes any
            request.
        max_request_seconds: the most that any request may take.
        cached_chunks: prefill chunks that the prefix cache can keep; 0 keeps none.
        source_capacity: tokens of a source that a slot can hold; 0 where there are no sources.
        source_places: places of `SOURCE_PLACE` tokens each for encoded sources that are kept; 0
            keeps none.
    """

    slots: int
    capacity: int
    prefill_chunk: int
    max_queue: int
    max_queue_tokens: int
    max_request_seconds: float
    cached_chunks: int = 0
    source_capacity: int = 0
    source_places: int = 0

    @property
    def max_input(self) -> int:
        """Tokens of a source; without one, of a prompt, which leaves room for a token."""
        return self.source_capacity or self.capacity - 1

    @property
    def max_decoder_prompt(self) -> int:
        """Tokens that a target begins with, between its start token and one that follows."""
        return self.capacity - 2

    @property
    def encoded_at_once(self) -> int:
        """Tokens of sources, their padding included, that one batch has at most."""
        return max(self.prefill_chunk, self.source_capacity)

    def check(self, prompt_length: int, rows: int, source_length: int = 0) -> None:
        """Refuses a request that needs so many rows at once and could never run.

        The caller's prompt is the source, where there is one; what the completions go on from is
        then a start token and the caller's `decoder_prompt`.

        Raises:
            InvalidInput: the prompt or source is empty, or the rows exceed the slots.
            InputTooLong: the source does not fit, or the prompt leaves no room for a token.
        """
        if self.source_capacity:
            check_length("prompt", source_length, 1, self.max_input)
            check_length("decoder_prompt", prompt_length - 1, 0, self.max_decoder_prompt)
        else:
            check_length("prompt", prompt_length, 1, self.max_input)
        if not 1 <= rows <= self.slots:
            raise InvalidInput(f"n, or beam.width, is {rows}; it must be from 1 to {self.slots}")


def encoder_limits(
    manifest: Manifest,
    *,
    max_input: int | None = None,
    max_batch_tokens: int | None = None,
    max_queue: int = DEFAULT_MAX_QUEUE,
    max_queue_tokens: int | None = None,
    max_wait_seconds: float = 0.0,
    max_request_seconds: float = DEFAULT_MAX_REQUEST_SECONDS,
) -> EncoderLimits:
    """The limits of an encoder; None is what the model takes, or the default of its device."""
    batch_tokens = max_batch_tokens or _BATCH_TOKENS[manifest.device]
    return EncoderLimits(
        max_input=max_input or manifest.limits.max_input,
        max_batch_tokens=batch_tokens,
        max_queue=max_queue,
        max_queue_tokens=max_queue_tokens or _QUEUED_CAPACITIES * batch_tokens,
        max_wait_seconds=max_wait_seconds,
        max_request_seconds=max_request_seconds,
    )


def decoder_limits(
    manifest: Manifest,
    cache_bytes: int,
    *,
    prefix_cache_bytes: int = 0,
    slots: int = DEFAULT_SLOTS,
    max_length: int | None = None,
    prefill_chunk: int | None = None,
    max_queue: int = DEFAULT_MAX_QUEUE,
    max_queue_tokens: int | None = None,
    max_request_seconds: float = DEFAULT_MAX_REQUEST_SECONDS,
) -> DecoderLimits:
    """The limits of a decoder whose cache may take `cache_bytes`; None is a default.

    The prefix cache takes its bytes beside those; an encoder-decoder keeps encoded sources there.

    Raises:
        LimitError: there are not two positions a slot, by `max_length` or the cache's room.
    """
    if max_length is not None and max_length < _FEWEST_POSITIONS:
        raise LimitError(
            f"{manifest.name}: --max-length {max_length} leaves a slot no room for what a "
            f"completion follows and a token of it; raise it to {_FEWEST_POSITIONS} at least"
        )
    chunk = prefill_chunk or _PREFILL_CHUNK[manifest.device]
    capacity, source_capacity = _capacities(manifest, cache_bytes // slots, max_length)
    if not source_capacity and capacity > chunk:
        capacity -= capacity % chunk
    if capacity < _FEWEST_POSITIONS:
        raise LimitError(
            f"{manifest.name}: {cache_bytes} bytes of cache hold {capacity} positions in each of "
            f"{slots} slots; raise --cache-bytes or --memory-limit, or lower --slots"
        )
    kept = prefix_cache_bytes // _place_bytes(manifest, chunk)
    return DecoderLimits(
        slots=slots,
        capacity=capacity,
        prefill_chunk=chunk,
        max_queue=max_queue,
        max_queue_tokens=max_queue_tokens or _QUEUED_CAPACITIES * (capacity + source_capacity),
        max_request_seconds=max_request_seconds,
        cached_chunks=0 if source_capacity else kept,
        source_capacity=source_capacity,
        source_places=kept if source_capacity else 0,
    )


def check_length(field: str, length: int, least: int, most: int) -> None:
    """Refuses an input by its tokens.

    Raises:
        InvalidInput: it is empty, and `least` is 1.
        InputTooLong: it has more than `most`.
    """
    if length < least:
        raise InvalidInput(f"{field} has no tokens; it needs at least one")
    if length > most:
        raise InputTooLong(f"{field} has {length} tokens; this model takes at most {most}")


def bytes_per_position(manifest: Manifest) -> int:
    """Bytes of cache for one position of one slot: the keys and values of all layers."""
    return _cache_bytes(manifest, "past")


def bytes_per_source_token(manifest: Manifest) -> int:
    """Bytes that a slot has for one token of a source; 0 for a model that has none."""
    return _cache_bytes(manifest, "cross")


def slot_bytes(manifest: Manifest, limits: DecoderLimits) -> int:
    """Bytes of one slot: the keys and values of its positions, and of a source."""
    positions = limits.capacity * bytes_per_position(manifest)
    return positions + limits.source_capacity * bytes_per_source_token(manifest)


def kept_bytes(manifest: Manifest, limits: DecoderLimits) -> int:
    """Bytes of what is kept for later requests: prefill chunks, or encoded sources."""
    places = limits.source_places or limits.cached_chunks
    return places * _place_bytes(manifest, limits.prefill_chunk)


def share_cache_bytes(total: int, manifests: Mapping[str, Manifest]) -> dict[str, int]:
    """Divides bytes of cache among the models that generate, as their positions weigh."""
    weights = {
        name: bytes_per_position(manifest) + bytes_per_source_token(manifest)
        for name, manifest in manifests.items()
        if "decoder" in manifest.graphs
    }
    return {name: total * weight // sum(weights.values()) for name, weight in weights.items()}


def _place_bytes(manifest: Manifest, prefill_chunk: int) -> int:
    """Bytes of what is kept as a whole: a part of a source, or a prefill chunk."""
    if source_token := bytes_per_source_token(manifest):
        return SOURCE_PLACE * source_token
    return prefill_chunk * bytes_per_position(manifest)


def _capacities(manifest: Manifest, row_bytes: int, max_length: int | None) -> tuple[int, int]:
    """Positions and source tokens of a slot of so many bytes: as many as the model, and the caller,
    let each have, the larger of both no longer than need be.
    """
    position, source_token = bytes_per_position(manifest), bytes_per_source_token(manifest)
    most_positions = manifest.limits.max_positions
    most_tokens = manifest.limits.max_input if source_token else 0

    def fits(length: int) -> bool:
        positions, tokens = min(length, most_positions), min(length, most_tokens)
        return positions * position + tokens * source_token <= row_bytes

    most = max(most_positions, most_tokens)
    lengths = range(1, min(most, max_length or most) + 1)
    longest = bisect_left(lengths, True, key=lambda length: not fits(length))
    return min(longest, most_positions), min(longest, most_tokens)


def _cache_bytes(manifest: Manifest, part: str) -> int:
    """Bytes of one position in all inputs `part.*` of the decoder."""
    return sum(
        math.prod(size for size in spec.shape if isinstance(size, int))
        * np.dtype(spec.dtype).itemsize
        for spec in manifest.graphs["decoder"].inputs
        if spec.name.startswith(f"{part}.")
    )
