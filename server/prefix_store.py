"""Prefill chunks that later prompts begin with too: copied out of a row, and into another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from server.limits import DecoderLimits
from server.metrics import ModelMetrics
from server.prefix_cache import Chunk, PrefixCache
from server.request import GenerationRequest


class ChunkCopier(Protocol):
    """What copies keys and values; `DecoderRunner` says what each does."""

    chunk_bytes: int

    def keep_chunk(self, row: int, start: int, place: int) -> None: ...

    def restore_chunk(self, place: int, row: int, start: int) -> None: ...


class PrefixStore:
    """Reuses whole chunks that prefill has computed, and never the last of a prompt.

    A chunk's keys and values are a function of the tokens up to its end alone, computed in the
    same pieces whoever asks: what is restored is, bit for bit, what would have been computed.
    """

    def __init__(self, copier: ChunkCopier, limits: DecoderLimits, metrics: ModelMetrics) -> None:
        self._copier = copier
        self._size = limits.prefill_chunk
        self._cache = PrefixCache(limits.cached_chunks)
        self._metrics = metrics

    def restore(self, request: GenerationRequest, row: int) -> int:
        """Copies what is known of a prompt's beginning into a row; how many tokens that is.

        A request for the prompt's log-probabilities gets nothing: it needs all chunks computed.
        """
        whole = (len(request.prompt) - 1) // self._size
        if not (self._cache.places and whole) or request.output.prompt_logprobs:
            return 0
        places = self._cache.find(request.partition, self._chunks(request.prompt, whole))
        for index, place in enumerate(places):
            self._copier.restore_chunk(place, row, index * self._size)
        reused = len(places) * self._size
        self._metrics.prefix_cache_lookups.inc()
        self._metrics.prefix_cache_hits.inc(bool(places))
        self._metrics.prefix_cache_reused_tokens.inc(reused)
        return reused

    def keep(self, request: GenerationRequest, row: int, start: int, end: int) -> None:
        """Copies a chunk that was just computed out of a row, if it is whole and there is room."""
        if end - start < self._size:
            return
        chunks = self._chunks(request.prompt, end // self._size)
        place = self._cache.add(request.partition, chunks)
        if place is not None:
            self._copier.keep_chunk(row, start, place)
            self._metrics.prefix_cache_bytes.set(len(self._cache) * self._copier.chunk_bytes)

    def _chunks(self, prompt: Sequence[int], count: int) -> list[Chunk]:
        size = self._size
        return [tuple(prompt[index * size : (index + 1) * size]) for index in range(count)]
