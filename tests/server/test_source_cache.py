"""What is kept of encoded sources: within its bytes, exactly, and of each partition's own."""

from __future__ import annotations

from typing import cast

from prometheus_client import CollectorRegistry

from server.limits import DecoderLimits
from server.metrics import Metrics
from server.request import Summary
from server.runner import Memory
from server.source_cache import SourceCache
from tests.server.engines import metric
from tests.server.source_engines import scripted, spoken, translation

TOKEN_BYTES = 8


class Kept:
    """A memory that is only a size."""

    def __init__(self, length: int) -> None:
        self.row_bytes = length * TOKEN_BYTES


class Keeper:
    """Keeps memories as long as the row's number says."""

    source_token_bytes = TOKEN_BYTES

    def keep_memory(self, row: int) -> Memory:
        return cast("Memory", Kept(row))


class Keeping:
    """A cache of so many bytes, and what is measured of it."""

    def __init__(self, size: int) -> None:
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, ["model"]).model("model")
        limits = DecoderLimits(
            1, 8, 8, 1, 1, 1.0, source_capacity=64, source_cache_bytes=size * TOKEN_BYTES
        )
        self.cache = SourceCache(Keeper(), limits, metrics)

    def keep(self, *source: int, partition: str = "") -> None:
        self.cache.keep(translation(source, partition=partition), row=len(source))

    def knows(self, *source: int, partition: str = "") -> bool:
        return self.cache.find(translation(source, partition=partition)) is not None

    @property
    def tokens(self) -> float:
        return metric(self.registry, "prefix_cache_bytes") / TOKEN_BYTES


def test_the_source_used_longest_ago_makes_room() -> None:
    keeping = Keeping(6)
    for source in ((1, 1), (2, 2), (3, 3)):
        keeping.keep(*source)
    assert keeping.tokens == 6
    assert keeping.knows(1, 1)
    keeping.keep(4)
    assert keeping.tokens == 5
    assert [keeping.knows(*each) for each in ((1, 1), (2, 2), (3, 3))] == [True, False, True]
    assert keeping.knows(4)
    keeping.keep(5, 5, 5, 5, 5)
    assert keeping.tokens == 6
    assert [keeping.knows(*source) for source in ((1, 1), (3, 3), (4,))] == [False, False, True]


def test_what_is_larger_than_all_there_is_is_not_kept_and_displaces_nothing() -> None:
    keeping = Keeping(3)
    keeping.keep(1, 2, 3)
    keeping.keep(1, 2, 3, 4)
    assert keeping.knows(1, 2, 3)
    assert not keeping.knows(1, 2, 3, 4)
    assert keeping.tokens == 3


def test_a_source_is_kept_once_and_found_by_its_partition_alone() -> None:
    keeping = Keeping(9)
    for _ in range(2):
        keeping.keep(1, 2, partition="one")
    assert keeping.tokens == 2
    assert not keeping.knows(1, 2)
    assert not keeping.knows(1, 2, partition="two")
    assert keeping.knows(1, 2, partition="one")
    counts = ("lookups", "hits", "reused_tokens")
    assert [metric(keeping.registry, f"prefix_cache_{name}_total") for name in counts] == [3, 1, 2]


def test_without_bytes_nothing_is_looked_up() -> None:
    keeping = Keeping(0)
    keeping.keep(1)
    assert not keeping.knows(1)
    assert metric(keeping.registry, "prefix_cache_lookups_total") == 0


async def test_a_known_source_is_not_encoded_again() -> None:
    async with scripted(source_cache_bytes=100) as engine:
        for known in (0, 3):
            mailbox = engine.submit(translation([5, 6, 7], 4, prefix=[9], n=2))
            end = await mailbox.end()
            assert isinstance(end, Summary)
            assert (end.prompt_tokens, end.cached_tokens) == (4, known)
            assert mailbox.tokens(0) == mailbox.tokens(1) == spoken([5, 6, 7], 4, [9])
        assert len(engine.runner.batches) == 1
        await engine.quiet()
