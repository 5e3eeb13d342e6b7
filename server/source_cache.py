"""Encoded sources that later requests have, too: copied out of a row, and into others."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from server.limits import DecoderLimits
from server.metrics import ModelMetrics
from server.request import GenerationRequest
from server.runner import Memory


class MemoryKeeper(Protocol):
    """What copies keys and values; `Seq2seqRunner` says what it does."""

    source_token_bytes: int

    def keep_memory(self, row: int) -> Memory: ...


class SourceCache:
    """The memories of the sources that were used last, as many as fit its bytes.

    Sources are told apart by their very tokens, and nobody finds those of another partition.
    """

    def __init__(self, keeper: MemoryKeeper, limits: DecoderLimits, metrics: ModelMetrics) -> None:
        self._keeper = keeper
        self._most_bytes = limits.source_cache_bytes
        self._metrics = metrics
        self._memories: OrderedDict[tuple[str, tuple[int, ...]], Memory] = OrderedDict()
        self._bytes = 0

    def find(self, request: GenerationRequest) -> Memory | None:
        """What was kept of a request's source; it counts as used. None where nothing was."""
        if not self._most_bytes:
            return None
        memory = self._memories.get(_key(request))
        self._metrics.prefix_cache_lookups.inc()
        if memory is not None:
            self._memories.move_to_end(_key(request))
            self._metrics.prefix_cache_hits.inc()
            self._metrics.prefix_cache_reused_tokens.inc(len(request.source))
        return memory

    def keep(self, request: GenerationRequest, row: int) -> None:
        """Copies the memory of a request's source out of a row, if it fits at all."""
        size = len(request.source) * self._keeper.source_token_bytes
        if size > self._most_bytes or _key(request) in self._memories:
            return
        while self._bytes + size > self._most_bytes:
            _, oldest = self._memories.popitem(last=False)
            self._bytes -= oldest.row_bytes
        self._memories[_key(request)] = self._keeper.keep_memory(row)
        self._bytes += size
        self._metrics.prefix_cache_bytes.set(self._bytes)


def _key(request: GenerationRequest) -> tuple[str, tuple[int, ...]]:
    return request.partition, request.source
