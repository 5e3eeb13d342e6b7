"""Encoded sources that later requests have, too: copied out of a row, and into others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from server.limits import SOURCE_PLACE, DecoderLimits
from server.metrics import ModelMetrics
from server.request import GenerationRequest


class SourceCopier(Protocol):
    """What copies keys and values; `Seq2seqRunner` says what each does."""

    place_bytes: int

    def keep_source(self, row: int, places: Sequence[int]) -> None: ...

    def restore_source(self, places: Sequence[int], length: int, row: int) -> None: ...


class SourceCache:
    """The sources that were used last, each in as many places as its tokens need.

    Sources are told apart by their very tokens, and nobody finds those of another partition.
    """

    def __init__(self, copier: SourceCopier, limits: DecoderLimits, metrics: ModelMetrics) -> None:
        self._copier = copier
        self._places = limits.source_places
        self._free = list(range(limits.source_places))
        self._metrics = metrics
        self._kept: OrderedDict[tuple[str, tuple[int, ...]], list[int]] = OrderedDict()

    def restore(self, request: GenerationRequest, rows: Sequence[int]) -> bool:
        """Copies what was kept of a request's source into its rows; whether anything was.

        What was kept counts as used. An exception of the copier leaves the cache as it is.
        """
        if not self._places:
            return False
        self._metrics.prefix_cache_lookups.inc()
        places = self._kept.get(_key(request))
        if places is None:
            return False
        self._kept.move_to_end(_key(request))
        for row in rows:
            self._copier.restore_source(places, len(request.source), row)
        self._metrics.prefix_cache_hits.inc()
        self._metrics.prefix_cache_reused_tokens.inc(len(request.source))
        return True

    def keep(self, request: GenerationRequest, row: int) -> None:
        """Copies the source of a request out of a row, if it fits at all.

        After an exception of the copier nothing is kept of it.
        """
        needed = -(-len(request.source) // SOURCE_PLACE)
        if needed > self._places or _key(request) in self._kept:
            return
        self._make_room(needed)
        places = self._free[:needed]
        self._copier.keep_source(row, places)
        del self._free[:needed]
        self._kept[_key(request)] = places
        self._publish()

    def _make_room(self, needed: int) -> None:
        """Forgets the sources used longest ago until so many places are free."""
        while len(self._free) < needed:
            _, places = self._kept.popitem(last=False)
            self._free += places
        self._publish()

    def _publish(self) -> None:
        used = self._places - len(self._free)
        self._metrics.prefix_cache_bytes.set(used * self._copier.place_bytes)


def _key(request: GenerationRequest) -> tuple[str, tuple[int, ...]]:
    return request.partition, request.source
