"""The prefix cache's bookkeeping, against a plain model: a dictionary of everything ever written.

The model writes down, for each place, the exact prompt whose chunk was copied there. Whatever the
cache hands out must be what it was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from server.prefix_cache import Chunk, PrefixCache

A, B, C, D = (1, 2), (3, 4), (5, 6), (-1, 7)


def fill(cache: PrefixCache, *chunks: Chunk, partition: str = "") -> list[int | None]:
    """Adds the chunks of one prompt, as its prefill does."""
    return [cache.add(partition, chunks[: end + 1]) for end in range(len(chunks))]


def test_a_prompt_finds_its_own_beginning_and_no_more() -> None:
    cache = PrefixCache(4)
    assert fill(cache, A, B) == [0, 1]
    assert cache.find("", [A, B, C]) == [0, 1]
    assert cache.find("", [A, C]) == [0]
    assert cache.find("", [B]) == []
    assert fill(cache, A, B) == [None, None], "it is there already"


def test_the_same_chunk_behind_another_is_another() -> None:
    cache = PrefixCache(4)
    fill(cache, A, C)
    fill(cache, B, C)
    assert cache.find("", [A, C]) == [0, 1]
    assert cache.find("", [B, C]) == [2, 3]


def test_tokens_of_equal_hash_are_told_apart() -> None:
    """Python hashes -1 and -2 alike, and so tuples of them."""
    assert hash((-1, 7)) == hash((-2, 7))
    cache = PrefixCache(4)
    fill(cache, D)
    assert cache.find("", [(-2, 7)]) == []


def test_partitions_share_nothing() -> None:
    cache = PrefixCache(4)
    fill(cache, A, B, partition="one")
    assert cache.find("two", [A, B]) == cache.find("", [A, B]) == []
    assert fill(cache, A, partition="two") == [2]
    assert cache.find("one", [A, B]) == [0, 1]


def test_the_one_used_longest_ago_makes_room_and_never_what_others_build_on() -> None:
    cache = PrefixCache(3)
    fill(cache, A, B)
    fill(cache, C)
    cache.find("", [A])
    assert fill(cache, D) == [1], "B, which was used before C and A"
    assert fill(cache, B) == [2], "then C"
    assert cache.find("", [A]) == [0]


def test_a_prompt_longer_than_the_cache_keeps_its_beginning() -> None:
    cache = PrefixCache(2)
    fill(cache, D)
    assert fill(cache, A, B, C) == [1, 0, None]
    assert fill(PrefixCache(0), A) == [None]


def test_what_follows_a_gap_is_not_kept() -> None:
    cache = PrefixCache(2)
    assert cache.add("", [A, B]) is None
    assert len(cache) == 0


chunks = st.lists(st.tuples(st.integers(0, 2)), min_size=1, max_size=5)
partitions = st.sampled_from(["", "one", "two"])


class RandomPrompts(RuleBasedStateMachine):
    """Prompts of few tokens from few callers, so that they overlap in every way."""

    @initialize(places=st.integers(0, 6))
    def start(self, places: int) -> None:
        self.cache = PrefixCache(places)
        self.written: dict[int, tuple[str, Sequence[Chunk]]] = {}
        self.clock = 0
        self.used: dict[int, int] = {}  # by place, when a prompt last needed it

    @rule(partition=partitions, prompt=chunks)
    def prefill(self, partition: str, prompt: list[Chunk]) -> None:
        found = self.lookup(partition, prompt)
        for end in range(len(found) + 1, len(prompt) + 1):
            full = len(self.written) == self.cache.places
            leaves = self.leaves()
            place = self.cache.add(partition, prompt[:end])
            if place is None:
                assert full, "there was room"
                break
            if full:
                assert place in leaves, "others build on it"
                self.check_was_oldest(place, leaves, (partition, prompt[: end - 1]))
            self.written[place] = (partition, prompt[:end])
            self.touch(partition, prompt[:end])
        assert len(self.lookup(partition, prompt)) >= len(found)

    @rule(partition=partitions, prompt=chunks)
    def find(self, partition: str, prompt: list[Chunk]) -> None:
        self.lookup(partition, prompt)

    @invariant()
    def everything_kept_is_found(self) -> None:
        assert len(self.cache) == len(self.written) <= self.cache.places
        for place, (partition, prompt) in list(self.written.items()):
            assert self.places_of(partition, prompt)[-1] == place

    def lookup(self, partition: str, prompt: Sequence[Chunk]) -> list[int]:
        found = self.cache.find(partition, prompt)
        assert found == self.places_of(partition, prompt)
        self.touch(partition, prompt)
        return found

    def places_of(self, partition: str, prompt: Sequence[Chunk]) -> list[int]:
        """Where the model knows the longest beginning of a prompt to lie."""
        places = {(p, tuple(chunks)): place for place, (p, chunks) in self.written.items()}
        found: list[int] = []
        for end in range(1, len(prompt) + 1):
            if (place := places.get((partition, tuple(prompt[:end])))) is None:
                break
            found.append(place)
        return found

    def touch(self, partition: str, prompt: Sequence[Chunk]) -> None:
        self.clock += 1
        self.used |= dict.fromkeys(self.places_of(partition, prompt), self.clock)

    def leaves(self) -> set[int]:
        """The places of chunks that nothing kept builds on."""
        inner = {(p, tuple(chunks[:-1])) for p, chunks in self.written.values()}
        return {
            place for place, (p, chunks) in self.written.items() if (p, tuple(chunks)) not in inner
        }

    def check_was_oldest(
        self, place: int, leaves: set[int], builds_on: tuple[str, Sequence[Chunk]]
    ) -> None:
        """No chunk that could have gone was used before the one that went."""
        could_go = [leaf for leaf in leaves if self.written[leaf] != builds_on]
        assert self.used[place] == min(self.used[leaf] for leaf in could_go)


TestRandomPrompts = RandomPrompts.TestCase
TestRandomPrompts.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
