"""What the server will take of the CPU's memory, compared with what it may have; in bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from export.manifest import Device, Manifest
from server.available_memory import available_memory
from server.limits import (
    DecoderLimits,
    EncoderLimits,
    LimitError,
    bytes_per_source_token,
    kept_bytes,
    slot_bytes,
)

_FLOAT_BYTES = 4
_SERVING_BYTES = 64 << 20  # what gRPC, the allocator and the tokenizers' caches grow by
_LOGIT_COPIES = 4  # the graph's, and those that penalties, sampling and log-probabilities make


def allowed_memory(memory_limit: int | None) -> int:
    """What this process may have in all: --memory-limit, or what it has and can still take."""
    most = process_memory() + available_memory()
    return most if memory_limit is None else min(most, memory_limit)


def process_memory() -> int:
    """What this process has now."""
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return resident_pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ModelMemory:
    """What one model takes; nothing for what lies on another device.

    Attributes:
        weights: the artefact's files, which are read here wherever they go.
        cache: keys and values of all slots.
        prefix_cache: keys and values that are kept for later prompts and sources.
        working: an estimate of what the largest batch and step of each engine need for themselves.
    """

    weights: int
    cache: int = 0
    prefix_cache: int = 0
    working: int = 0

    @classmethod
    def of(
        cls, manifest: Manifest, encoder: EncoderLimits | None, decoder: DecoderLimits | None
    ) -> Self:
        """Of a model that embeds, generates, or both, within these limits."""
        weights = sum(file.size for file in manifest.files.values())
        if manifest.device is not Device.CPU:
            return cls(weights)
        encoding = _encoding_bytes(manifest, encoder) if encoder else 0
        decoding = _decoding_bytes(manifest, decoder) if decoder else 0
        working = encoding + decoding  # each engine has a thread, and both run at once
        if decoder is None:
            return cls(weights, working=working)
        return cls(
            weights,
            cache=decoder.slots * slot_bytes(manifest, decoder),
            prefix_cache=kept_bytes(manifest, decoder),
            working=working,
        )


@dataclass(frozen=True)
class MemoryBudget:
    """What the whole server takes once it serves.

    Attributes:
        process: what the process has before it loads a graph: interpreter, libraries, tokenizers.
        weights, cache, prefix_cache, working: of all models, as `ModelMemory` has them; what
            serving itself takes is with `working`.
    """

    process: int
    weights: int
    cache: int
    prefix_cache: int
    working: int

    @classmethod
    def of(cls, models: Iterable[ModelMemory]) -> Self:
        """Of models whose engines are not started yet."""
        parts = list(models)
        return cls(
            process=process_memory(),
            weights=sum(part.weights for part in parts),
            cache=sum(part.cache for part in parts),
            prefix_cache=sum(part.prefix_cache for part in parts),
            working=sum(part.working for part in parts) + _SERVING_BYTES,
        )

    @property
    def total(self) -> int:
        """All of it."""
        return sum(asdict(self).values())

    def check(self, allowed: int) -> None:
        """Refuses what does not fit.

        Raises:
            LimitError: says what is needed, for what, and what to change.
        """
        if self.total <= allowed:
            return
        parts = ", ".join(f"{name} {size}" for name, size in asdict(self).items())
        raise LimitError(
            f"{self.total} bytes of memory are needed ({parts}), but {allowed} may be taken: "
            "raise --memory-limit or the container's limit, lower --cache-bytes, --slots, "
            "--prefix-cache-bytes or --max-batch-tokens, or serve fewer models"
        )


def _encoding_bytes(manifest: Manifest, limits: EncoderLimits) -> int:
    """Activations of the largest batch, the scores of its attention among them."""
    tokens = max(limits.max_batch_tokens, limits.max_input)
    return tokens * (_per_token(manifest) + _scores(manifest, limits.max_input)) * _FLOAT_BYTES


def _decoding_bytes(manifest: Manifest, limits: DecoderLimits) -> int:
    """Of an encoder-decoder, a batch of sources and a step; else a prefill chunk and its logits."""
    if limits.source_capacity:
        sources = limits.encoded_at_once
        encoding = sources * (_per_token(manifest) + _scores(manifest, limits.source_capacity))
        encoded = sources * bytes_per_source_token(manifest)
        return encoding * _FLOAT_BYTES + encoded + _step_bytes(manifest, limits, limits.slots)
    return _step_bytes(manifest, limits, max(limits.prefill_chunk, limits.slots))


def _step_bytes(manifest: Manifest, limits: DecoderLimits, tokens: int) -> int:
    """Activations of so many tokens, the scores of their attention among them, and logits."""
    length = max(limits.capacity, limits.source_capacity)
    activations = tokens * (_per_token(manifest) + _scores(manifest, length))
    logits = tokens * manifest.vocabulary_size * _LOGIT_COPIES
    return (activations + logits) * _FLOAT_BYTES


def _per_token(manifest: Manifest) -> int:
    """Numbers that a layer holds for a token at the same time, roughly: the next layer reuses
    their place.
    """
    return 8 * _size(manifest, "d_model") + 2 * _size(manifest, "d_ff")


def _scores(manifest: Manifest, length: int) -> int:
    """Numbers that attention holds for a token that attends to `length` others."""
    return _size(manifest, "heads") * length


def _size(manifest: Manifest, name: str) -> int:
    return int(manifest.config.get(name, 0))
