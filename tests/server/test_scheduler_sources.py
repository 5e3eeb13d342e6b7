"""The scheduler of an encoder-decoder: how sources are admitted, and the properties of its traffic.

The property test is the one of `test_scheduler`: here a group begins with its source, which every
row of its sequences has to hold, and its sequences read the prompt themselves.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from server.scheduler import Move, Scheduler, SequenceGroup
from tests.server.test_scheduler import RandomTraffic

LONGEST = 12


def group(
    key: str, source_length: int = 3, n: int = 1, deadline: float = math.inf
) -> SequenceGroup:
    return SequenceGroup(key, 2, n, deadline, source_length)


def begin(scheduler: Scheduler) -> list[range]:
    """Starts all that is admitted; their rows."""
    return [start(scheduler, each) for each in scheduler.next_sources()]


def start(scheduler: Scheduler, group: SequenceGroup) -> range:
    """Starts a group; its rows."""
    rows = scheduler.next_rows(group)
    scheduler.start(group)
    assert [row.group for row in scheduler.running[rows.start :]] == [group] * len(rows)
    return rows


@pytest.mark.parametrize(
    ("lengths", "batches"),
    [
        ([2, 2, 2, 2, 2], [4, 1]),
        ([3, 2, 2, 2], [2, 2]),  # a third would be padded to the longest
        ([1, 9, 1, 1], [1, 1, 2]),  # one that takes more than a chunk alone
        ([4, 5, 5], [1, 1, 1]),
        ([8, 1], [1, 1]),
    ],
)
def test_sources_are_encoded_together_as_far_as_a_chunk_goes(
    lengths: list[int], batches: list[int]
) -> None:
    scheduler = Scheduler(slots=9, prefill_chunk=8)
    for length in lengths:
        scheduler.add(group(str(length), length))
    found = []
    while rows := begin(scheduler):
        found.append(len(rows))
    assert found == batches
    assert [sequence.group.source_length for sequence in scheduler.running] == lengths


def test_a_group_needs_all_its_rows_and_is_not_overtaken() -> None:
    scheduler = Scheduler(slots=4, prefill_chunk=64)
    for each in (group("a", n=2), group("b", n=3), group("c")):
        scheduler.add(each)
    assert begin(scheduler) == [range(2)]
    assert begin(scheduler) == [], "b does not fit, and c must not overtake it"
    assert scheduler.finish(scheduler.running[:1]) == [Move(1, 0, 0, memory=True)]
    assert begin(scheduler) == [range(1, 4)]
    assert scheduler.used_slots == 4


def test_rows_are_reserved_while_a_source_is_encoded_and_free_if_that_fails() -> None:
    scheduler = Scheduler(slots=4, prefill_chunk=64)
    good, bad, late = group("good", n=2), group("bad", n=2), group("late", deadline=1.0)
    for each in (good, bad, late):
        scheduler.add(each)
    assert scheduler.next_sources() == [good, bad]
    assert scheduler.used_slots == 4
    assert not scheduler.idle
    assert scheduler.expired(2.0) == [late]
    assert scheduler.abort(bad) == []
    assert start(scheduler, good) == range(2)
    assert scheduler.used_slots == 2
    assert scheduler.cached_positions == 2 * good.source_length
    assert begin(scheduler) == [range(2, 3)]


def test_a_sequence_moves_with_its_source_and_beams_share_theirs() -> None:
    scheduler = Scheduler(slots=4, prefill_chunk=64)
    first, search = group("first"), group("search", n=3)
    for each in (first, search):
        scheduler.add(each)
    begin(scheduler)
    for _ in range(2):
        scheduler.complete_step()
        assert scheduler.fork(search, [0, 0, 0]) == [], "the prompt is the same in every row"
    scheduler.complete_step()
    assert scheduler.fork(search, [0, 0, 2]) == [Move(1, 2, 3, start=2)]
    assert scheduler.finish(scheduler.running[:1]) == [Move(3, 0, 3, memory=True)]


class SourceTraffic(RandomTraffic):
    """Requests of an encoder-decoder, some of whose sources fail to be encoded."""

    def arrival(self, key: int, prompt_length: int, n: int, deadline: int) -> SequenceGroup:
        source_length = (key * 7 + prompt_length) % LONGEST + 1
        return SequenceGroup(key, prompt_length, n, deadline, source_length)

    @rule(known=st.integers(0, 3))
    def begin(self, known: int = 0) -> None:
        """Encodes what comes next; every `known` + 1 th source of a batch fails, if `known`."""
        head = next(iter(self.scheduler.waiting), None)
        free = self.scheduler.slots - self.scheduler.used_slots
        groups = self.scheduler.next_sources()
        if not groups:
            assert head is None or head.n > free, "the head is admitted as soon as it fits"
            return
        self.admitted += groups
        self.check_batch(groups)
        for index, each in enumerate(groups):
            if known and index % (known + 1) == known:
                assert self.scheduler.abort(each) == []
                continue
            rows = start(self.scheduler, each)
            assert len(rows) == each.n
            for row in rows:
                self.memories[row] = each.key

    def check_batch(self, groups: list[SequenceGroup]) -> None:
        chunk = self.scheduler.prefill_chunk
        longest = max(each.source_length for each in groups)
        assert len(groups) == 1 or longest * len(groups) <= chunk
        if self.scheduler.waiting:
            following = self.scheduler.waiting[0]
            longest = max(longest, following.source_length)
            full = following.n > self.scheduler.slots - self.scheduler.used_slots
            assert full or longest * (len(groups) + 1) > chunk, "as many as fit"


TestSourceTraffic = SourceTraffic.TestCase
TestSourceTraffic.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
