"""What is kept of encoded sources: in its places, exactly, and of each partition's own."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest
from prometheus_client import CollectorRegistry

from server.limits import DecoderLimits
from server.metrics import Metrics
from server.request import Summary
from server.seq2seq_runner import Seq2seqRunner
from server.source_cache import SourceCache, SourceCopier
from tests.artefacts import encoder_decoder_artefact
from tests.server.engines import artefact, metric
from tests.server.source_engines import scripted, spoken, translation

PLACE_BYTES = 8


class Copier:
    """Remembers what was copied; every row holds what its number says."""

    place_bytes = PLACE_BYTES

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.restored: list[tuple[Sequence[int], int, int]] = []
        self.broken = False

    def keep_source(self, row: int, places: Sequence[int]) -> None:
        self._fail()
        self.held |= dict.fromkeys(places, row)

    def restore_source(self, places: Sequence[int], length: int, row: int) -> None:
        self._fail()
        self.restored.append((tuple(places), length, row))

    def _fail(self) -> None:
        if self.broken:
            raise RuntimeError("injected")


class Keeping:
    """A cache of so many places, and what is measured of it."""

    def __init__(self, places: int, copier: SourceCopier | None = None) -> None:
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, ["model"]).model("model")
        limits = DecoderLimits(1, 8, 8, 1, 1, 1.0, source_capacity=64, source_places=places)
        self.copier = Copier()
        self.cache = SourceCache(copier or self.copier, limits, metrics)

    def keep(self, first: int, length: int = 16, row: int = 0, partition: str = "") -> None:
        self.cache.keep(translation(source(first, length), partition=partition), row)

    def knows(self, first: int, length: int = 16, partition: str = "") -> bool:
        wanted = translation(source(first, length), partition=partition)
        return self.cache.restore(wanted, [0])

    def metric(self, name: str) -> float:
        return metric(self.registry, f"prefix_cache_{name}")

    @property
    def used(self) -> float:
        return self.metric("bytes") / PLACE_BYTES


def source(first: int, length: int) -> list[int]:
    return [first] * length


def test_the_source_used_longest_ago_makes_room() -> None:
    keeping = Keeping(6)
    for first in (1, 2, 3):
        keeping.keep(first, 32)
    assert keeping.used == 6
    assert keeping.knows(1, 32)
    keeping.keep(4, 5)
    assert keeping.used == 5, "a place is not shared"
    assert [keeping.knows(first, 32) for first in (1, 2, 3)] == [True, False, True]
    assert keeping.knows(4, 5)
    keeping.keep(5, 65)
    assert keeping.used == 6
    assert [keeping.knows(1, 32), keeping.knows(3, 32), keeping.knows(4, 5)] == [False, False, True]


def test_what_is_larger_than_all_there_is_is_not_kept_and_displaces_nothing() -> None:
    keeping = Keeping(3)
    keeping.keep(1, 48)
    keeping.keep(1, 49)
    assert keeping.knows(1, 48)
    assert not keeping.knows(1, 49)
    assert keeping.used == 3


def test_a_source_is_kept_once_and_found_by_its_partition_alone() -> None:
    keeping = Keeping(9)
    for _ in range(2):
        keeping.keep(1, 17, partition="one")
    assert keeping.used == 2
    assert not keeping.knows(1, 17)
    assert not keeping.knows(1, 17, partition="two")
    assert keeping.knows(1, 17, partition="one")
    counts = [keeping.metric(f"{name}_total") for name in ("lookups", "hits", "reused_tokens")]
    assert counts == [3, 1, 17]


def test_without_places_nothing_is_looked_up() -> None:
    keeping = Keeping(0)
    keeping.keep(1)
    assert not keeping.knows(1)
    assert keeping.metric("lookups_total") == 0


def test_no_two_sources_have_a_place_in_common_whatever_comes_and_goes() -> None:
    keeping, draw, rows = Keeping(20), random.Random(3), {}
    for row in range(300):
        first, length = draw.randrange(10, 30), draw.choice([1, 15, 16, 17, 40, 64])
        if draw.random() < 0.1:
            keeping.copier.broken = True
            with pytest.raises(RuntimeError):
                keeping.keep(-row, length, row)
            keeping.copier.broken = False
        if not keeping.knows(first, length):
            keeping.keep(first, length, row)
            rows[first, length] = row
            assert keeping.knows(first, length)
        places, restored, _ = keeping.copier.restored[-1]
        assert restored == length
        assert len(places) == -(-length // 16)
        assert {keeping.copier.held[place] for place in places} == {rows[first, length]}
    assert set(keeping.copier.held) == set(range(20))


def test_a_copy_that_fails_is_no_hit_and_forgets_nothing() -> None:
    keeping = Keeping(2)
    keeping.keep(1)
    keeping.copier.broken = True
    with pytest.raises(RuntimeError):
        keeping.knows(1)
    with pytest.raises(RuntimeError):
        keeping.keep(2, 32)
    assert (keeping.used, keeping.metric("hits_total")) == (0, 0), "it had made room"
    keeping.copier.broken = False
    keeping.keep(2, 32)
    assert keeping.knows(2, 32)


def test_many_sources_of_all_lengths_allocate_nothing_but_their_names() -> None:
    places = 64
    limits = DecoderLimits(1, 8, 256, 1, 1, 1.0, source_capacity=256, source_places=places)
    runner = Seq2seqRunner(artefact(encoder_decoder_artefact()), limits)
    keeping = Keeping(places, runner)
    tracemalloc.start()
    for length in (1, 256, 16, 17, 100):
        runner.encode([source(5, length)])
        runner.place(0, 0)
        for first in range(places // -(-length // 16) + 2):
            keeping.keep(first, length)
        assert keeping.used * PLACE_BYTES > 0.8 * places * runner.place_bytes
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 0.1 * places * runner.place_bytes


async def test_a_known_source_is_not_encoded_again() -> None:
    async with scripted(source_places=2) as engine:
        for known in (0, 3):
            mailbox = engine.submit(translation([5, 6, 7], 4, prefix=[9], n=2))
            end = await mailbox.end()
            assert isinstance(end, Summary)
            assert (end.prompt_tokens, end.cached_tokens) == (4, known)
            assert mailbox.tokens(0) == mailbox.tokens(1) == spoken([5, 6, 7], 4, [9])
        assert len(engine.runner.batches) == 1
        assert engine.runner.copies == {"place": 2, "keep_source": 1, "restore_source": 2}
        await engine.quiet()
