"""The scheduler: single decisions, then its properties over random traffic.

The property test keeps a cache of its own, in which every position holds who wrote it: a move that
is missing, wrong or made in the wrong order shows as another's position in a running row. Some of
its groups are searches, whose sequences go on from each other's rows and end together.
"""

from __future__ import annotations

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from server.scheduler import Move, PrefillChunk, Scheduler, Sequence, SequenceGroup

CAPACITY = 24


def group(
    key: str, prompt_length: int = 3, n: int = 1, deadline: float = math.inf
) -> SequenceGroup:
    return SequenceGroup(key, prompt_length, n, deadline)


def prefill(scheduler: Scheduler) -> list[Move]:
    """Runs the chunks of one prompt; the copies at its end."""
    while chunk := scheduler.next_chunk():
        moves = scheduler.complete_chunk(chunk)
        if chunk.last:
            return moves
    raise AssertionError("nothing to prefill")


def keys(scheduler: Scheduler) -> list[object]:
    return [sequence.group.key for sequence in scheduler.running]


def test_chunks_end_at_multiples_of_the_chunk_and_at_the_end() -> None:
    scheduler = Scheduler(slots=2, prefill_chunk=4)
    scheduler.add(group("a", prompt_length=10))
    chunks = []
    while chunk := scheduler.next_chunk():
        chunks.append((chunk.start, chunk.end, chunk.last))
        scheduler.complete_chunk(chunk)
    assert chunks == [(0, 4, False), (4, 8, False), (8, 10, True)]


def test_finished_rows_are_filled_from_the_end() -> None:
    scheduler = Scheduler(slots=5, prefill_chunk=4)
    for key in "abcde":
        scheduler.add(group(key))
        assert prefill(scheduler) == []
    first, second = scheduler.running[1], scheduler.running[2]
    scheduler.complete_step()
    assert scheduler.finish([first, second]) == [Move(3, 1, 4), Move(4, 2, 4)]
    assert keys(scheduler) == ["a", "d", "e"]
    assert scheduler.finish([first, second]) == []


def test_a_prompt_whose_row_is_behind_a_gap_is_copied_to_the_first_free_row() -> None:
    scheduler = Scheduler(slots=4, prefill_chunk=2)
    for key in "ab":
        scheduler.add(group(key))
        prefill(scheduler)
    scheduler.add(group("c", prompt_length=3))
    chunk = scheduler.next_chunk()
    assert chunk == PrefillChunk(chunk.group, row=2, start=0, end=2) if chunk else False
    scheduler.finish(scheduler.running[:1])  # b moves to row 0, row 1 is free
    assert chunk is not None
    scheduler.complete_chunk(chunk)
    assert prefill(scheduler) == [Move(2, 1, 3)]
    assert keys(scheduler) == ["b", "c"]


def test_n_sequences_share_one_prefill_and_need_their_rows_at_once() -> None:
    scheduler = Scheduler(slots=4, prefill_chunk=4)
    scheduler.add(group("a", n=2))
    assert prefill(scheduler) == [Move(0, 1, 3)]
    scheduler.add(group("b", n=3))
    scheduler.add(group("c", n=1))
    assert scheduler.next_chunk() is None, "b does not fit, and c must not overtake it"
    scheduler.finish(scheduler.running[:1])
    assert prefill(scheduler) == [Move(1, 2, 3), Move(1, 3, 3)]
    assert [sequence.index for sequence in scheduler.running] == [1, 0, 1, 2]


def test_abort_frees_what_the_group_holds_and_only_once() -> None:
    scheduler = Scheduler(slots=3, prefill_chunk=2)
    running, prefilling, waiting = group("a", n=2), group("b", prompt_length=4), group("c")
    scheduler.add(running)
    prefill(scheduler)
    scheduler.add(prefilling)
    scheduler.next_chunk()
    scheduler.add(waiting)
    assert scheduler.used_slots == 3
    for victim in (waiting, prefilling, running, waiting, prefilling, running):
        scheduler.abort(victim)
    assert scheduler.idle
    assert scheduler.used_slots == 0


def test_deadlines_are_seen_wherever_the_group_is() -> None:
    scheduler = Scheduler(slots=2, prefill_chunk=2)
    running, prefilling = group("a", deadline=1.0), group("b", deadline=2.0)
    waiting, patient = group("c", deadline=3.0), group("d")
    scheduler.add(running)
    prefill(scheduler)
    for each in (prefilling, waiting, patient):
        scheduler.add(each)
    scheduler.next_chunk()
    assert scheduler.expired(0.5) == []
    assert set(scheduler.expired(3.0)) == {running, prefilling, waiting}


def test_chunks_that_are_known_are_skipped_whole() -> None:
    scheduler = Scheduler(slots=2, prefill_chunk=4)
    known = group("a", prompt_length=10)
    scheduler.add(known)
    chunk = scheduler.next_chunk()
    assert chunk is not None
    assert scheduler.skip(chunk, 8) == PrefillChunk(known, row=0, start=8, end=10)
    assert scheduler.next_chunk() == PrefillChunk(known, row=0, start=8, end=10)
    assert scheduler.cached_positions == 8


def test_forked_rows_are_copied_behind_the_prompt_and_only_where_they_differ() -> None:
    scheduler = Scheduler(slots=5, prefill_chunk=4)
    before, search = group("a"), group("b", n=4)
    for each in (before, search):
        scheduler.add(each)
        prefill(scheduler)
    assert scheduler.fork(search, [0, 0, 0, 0]) == [], "the prompt is in every row"
    for _ in range(2):
        scheduler.complete_step()
    assert scheduler.fork(search, [0, 1, 0, 0]) == [Move(1, 3, 5, start=3), Move(1, 4, 5, start=3)]
    scheduler.finish(scheduler.running[:1])  # the last beam moves to row 0
    assert scheduler.fork(search, [3, 1, 2, 3]) == [Move(0, 1, 5, start=3)]


class RandomTraffic(RuleBasedStateMachine):
    """Arrivals, chunks, steps, ends and aborts in any order, against a cache of who wrote what."""

    @initialize(slots=st.integers(1, 6), prefill_chunk=st.integers(1, 8))
    def start(self, slots: int, prefill_chunk: int) -> None:
        self.scheduler = Scheduler(slots, prefill_chunk)
        self.cache: list[list[object]] = [[None] * CAPACITY for _ in range(slots)]
        self.memories: list[object] = [None] * slots  # whose source each row has
        self.arrived: list[SequenceGroup] = []
        self.admitted: list[SequenceGroup] = []
        self.left: set[SequenceGroup] = set()  # aborted before they were admitted
        self.ended: set[tuple[SequenceGroup, int]] = set()
        self.searches: set[SequenceGroup] = set()
        self.written: dict[tuple[SequenceGroup, int], list[object]] = {}  # behind the prompt

    @rule(
        prompt_length=st.integers(1, 23),
        n=st.integers(1, 6),
        deadline=st.integers(1, 99),
        search=st.booleans(),
    )
    def arrive(self, prompt_length: int, n: int, deadline: int, search: bool = False) -> None:
        n = min(n, self.scheduler.slots)
        arrival = self.arrival(len(self.arrived), prompt_length, n, deadline)
        self.arrived.append(arrival)
        if search:
            self.searches.add(arrival)
        self.scheduler.add(arrival)

    def arrival(self, key: int, prompt_length: int, n: int, deadline: int) -> SequenceGroup:
        return SequenceGroup(key, prompt_length, n, deadline)

    @rule(known=st.integers(0, 3))
    def begin(self, known: int = 0) -> None:
        head = next(iter(self.scheduler.waiting), None)
        free = self.scheduler.slots - self.scheduler.used_slots
        begins = self.scheduler.prefilling is None
        chunk = self.scheduler.next_chunk()
        if chunk is None:
            assert begins
            assert head is None or head.n > free, "the head is admitted as soon as it fits"
            return
        if begins:
            assert chunk.group is head
            self.admitted.append(chunk.group)
        size = self.scheduler.prefill_chunk
        if begins and (whole := min(known, (chunk.group.prompt_length - 1) // size)):
            self.write_prompt(chunk.group, chunk.row, 0, whole * size)
            chunk = self.scheduler.skip(chunk, whole * size)
            assert chunk.start == whole * size
        assert chunk.start % size == 0
        assert chunk.end == min(chunk.start + size, chunk.group.prompt_length)
        assert chunk.row >= len(self.scheduler.running)
        self.write_prompt(chunk.group, chunk.row, chunk.start, chunk.end)
        self.make(self.scheduler.complete_chunk(chunk))

    @rule(groups=st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=6))
    def fill(self, groups: list[tuple[int, bool]]) -> None:
        for n, search in groups:
            self.arrive(prompt_length=2, n=n, deadline=99, search=search)
        for _ in range(2 * self.scheduler.slots):
            self.begin()

    @precondition(lambda self: self.can_step())
    @rule()
    def decode(self) -> None:
        for row, sequence in enumerate(self.scheduler.running):
            group, position = sequence.group, sequence.length
            if position < group.prompt_length:
                self.write_prompt(group, row, position, position + 1)
                continue
            written = (group.key, position, sequence.index)
            self.cache[row][position] = written
            self.written.setdefault((group, sequence.index), []).append(written)
        self.scheduler.complete_step()

    @precondition(lambda self: self.can_step())
    @rule(data=st.data())
    def step_and_fork(self, data: st.DataObject) -> None:
        self.decode()
        if not self.running_searches():
            return
        search = data.draw(st.sampled_from(self.running_searches()))
        staying = data.draw(st.sets(st.integers(0, search.n - 1), min_size=1))
        parents = [
            index if index in staying else data.draw(st.sampled_from(sorted(staying)))
            for index in range(search.n)
        ]
        moves = self.scheduler.fork(search, parents)
        assert len(moves) <= search.n - len(staying)
        self.make(data.draw(st.permutations(moves)))
        before = {index: self.written.get((search, index), []) for index in range(search.n)}
        for index, parent in enumerate(parents):
            self.written[search, index] = list(before[parent])

    @precondition(lambda self: self.scheduler.running)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        running = self.scheduler.running
        rows = data.draw(st.sets(st.integers(0, len(running) - 1), min_size=1))
        self.end([running[row] for row in rows])

    def running_searches(self) -> list[SequenceGroup]:
        """Those that have read their prompts."""
        running = self.scheduler.running
        ready = dict.fromkeys(s.group for s in running if s.length >= s.group.prompt_length)
        return [each for each in ready if each in self.searches]

    def write_prompt(self, of: SequenceGroup, row: int, start: int, end: int) -> None:
        self.cache[row][start:end] = [(of.key, position) for position in range(start, end)]

    @precondition(lambda self: self.can_step() is False and self.scheduler.running)
    @rule()
    def finish_full(self) -> None:
        self.end([s for s in self.scheduler.running if s.length == CAPACITY])

    @precondition(lambda self: self.arrived)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.take_out(data.draw(st.sampled_from(self.arrived)))

    @rule(now=st.integers(0, 50))
    def expire(self, now: int) -> None:
        expired = self.scheduler.expired(now)
        assert all(each.deadline <= now for each in expired)
        for each in expired:
            self.take_out(each)
        assert self.scheduler.expired(now) == []

    @invariant()
    def rows_hold_what_their_sequences_wrote(self) -> None:
        for row, sequence in enumerate(self.scheduler.running):
            prompt = min(sequence.group.prompt_length, sequence.length)
            key = sequence.group.key
            written = self.written.get((sequence.group, sequence.index), [])
            expected = [*((key, position) for position in range(prompt)), *written]
            assert self.cache[row][: sequence.length] == expected
            assert self.memories[row] == (key if sequence.group.source_length else None)

    @invariant()
    def slots_are_conserved(self) -> None:
        assert 0 <= self.scheduler.used_slots <= self.scheduler.slots
        running = [(each.group, each.index) for each in self.scheduler.running]
        assert len(set(running)) == len(running)
        assert not self.ended & set(running)

    @invariant()
    def admission_is_first_in_first_out(self) -> None:
        came = [each for each in self.arrived if each in set(self.admitted)]
        assert self.admitted == came
        waiting = [
            each
            for each in self.arrived
            if each not in set(self.admitted) and each not in self.left
        ]
        assert list(self.scheduler.waiting) == waiting

    def teardown(self) -> None:
        """Whatever the state, running it to its end serves everybody who is still there."""
        if not hasattr(self, "scheduler"):
            return
        for _ in range(50 * (len(self.arrived) + 1)):
            if self.scheduler.idle:
                break
            self.begin()
            self.finish_all_but_one_step()
            self.rows_hold_what_their_sequences_wrote()
        assert self.scheduler.idle
        assert self.scheduler.used_slots == 0
        assert self.scheduler.cached_positions == 0

    def finish_all_but_one_step(self) -> None:
        full = [s for s in self.scheduler.running if s.length >= CAPACITY - 2]
        self.end(full)
        if self.scheduler.running:
            self.decode()

    def can_step(self) -> bool:
        running = self.scheduler.running
        return bool(running) and all(s.length < CAPACITY for s in running)

    def take_out(self, victim: SequenceGroup) -> None:
        if victim in self.scheduler.waiting:
            self.left.add(victim)
        before = [s for s in self.scheduler.running if s.group is victim]
        self.note_ends(before)
        self.make(self.scheduler.abort(victim))
        assert self.scheduler.abort(victim) == []

    def end(self, sequences: list[Sequence]) -> None:
        searches = {s.group for s in sequences} & self.searches
        sequences = [s for s in self.scheduler.running if s in sequences or s.group in searches]
        self.note_ends(sequences)
        self.make(self.scheduler.finish(sequences))

    def note_ends(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            identity = (sequence.group, sequence.index)
            assert identity not in self.ended, "a sequence ends once"
            self.ended.add(identity)

    def make(self, moves: list[Move]) -> None:
        for move in moves:
            kept = self.cache[move.source][move.start : move.length]
            self.cache[move.destination][move.start : move.length] = kept
            if move.memory:
                self.memories[move.destination] = self.memories[move.source]


TestRandomTraffic = RandomTraffic.TestCase
TestRandomTraffic.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
