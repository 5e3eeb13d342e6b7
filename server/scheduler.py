"""Which rows of the cache do what next: continuous batching as plain data.

A request is a *group* of `n` sequences that share one prompt. It waits, then its prompt is
prefilled chunk by chunk in one row, then its sequences run, one row each, until each is finished:

    waiting (first in, first out) -> prefilling (one group at a time) -> running

    row      0 1 2 ... B-1 | B ... B+n-1 | ...
             running       | reserved for the group that is prefilling

Running sequences always lie in the leading rows, so that one decode step binds them as a view. When
some finish, the last ones move into their rows. The rows of a prefilling group are reserved when it
leaves the queue, all or none; its prompt is written to the first free row of that moment. Running
sequences that finish meanwhile leave a gap below it, which is closed once, when the prompt is done:
it is copied to the rows of its sequences.

A group of an encoder-decoder has a source as well, which is encoded whole, several at a time. Its
sequences run as soon as that is done, and read their prompt, which is short, a token a step:

    waiting -> encoding (as many groups as a batch takes) -> running, from length 0 on

There is no clock, array or I/O here: time is passed in, and moves are returned to be made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable
from dataclasses import dataclass


@dataclass(eq=False)
class SequenceGroup:
    """One request, as the scheduler sees it.

    Attributes:
        key: the engine's handle of the request.
        prompt_length: tokens of the prompt, at least 1.
        n: sequences that continue the prompt: completions, or the beams of a search.
        deadline: when it has to end, on the clock of `Scheduler.expired`.
        source_length: tokens of the source, of an encoder-decoder; else 0.
        prefilled: tokens of the prompt that are in the cache.
    """

    key: Hashable
    prompt_length: int
    n: int
    deadline: float
    source_length: int = 0
    prefilled: int = 0


@dataclass(eq=False)
class Sequence:
    """One running completion; `length` positions of its row are valid."""

    group: SequenceGroup
    index: int
    length: int


@dataclass(frozen=True)
class PrefillChunk:
    """Compute the tokens [start, end) of a group's prompt in a row of the cache."""

    group: SequenceGroup
    row: int
    start: int
    end: int

    @property
    def last(self) -> bool:
        """Whether the prompt is done with it, so that its last token's logits are wanted."""
        return self.end == self.group.prompt_length


@dataclass(frozen=True)
class Move:
    """Copy the positions [start, length) of a row to another, where those before are the same.

    `memory` says whether what the row holds of an encoded source goes along.
    """

    source: int
    destination: int
    length: int
    start: int = 0
    memory: bool = False


class Scheduler:
    """The rows of one cache and the groups that wait for them.

    Attributes:
        waiting: groups in the order of their arrival.
        prefilling: the group whose prompt is being computed.
        encoding: the groups whose sources are being computed.
        running: the sequences of the leading rows; the index is the row.
    """

    def __init__(self, slots: int, prefill_chunk: int) -> None:
        self.slots = slots
        self.prefill_chunk = prefill_chunk
        self.waiting: deque[SequenceGroup] = deque()
        self.prefilling: SequenceGroup | None = None
        self.encoding: list[SequenceGroup] = []
        self.running: list[Sequence] = []
        self._prefill_row = 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.waiting or self.prefilling or self.encoding or self.running)

    @property
    def used_slots(self) -> int:
        """Rows that run or are reserved."""
        prefilling = self.prefilling.n if self.prefilling else 0
        return len(self.running) + prefilling + sum(group.n for group in self.encoding)

    @property
    def cached_positions(self) -> int:
        """Positions that are valid in all rows together, those of sources included."""
        prefilled = self.prefilling.prefilled if self.prefilling else 0
        return prefilled + sum(row.length + row.group.source_length for row in self.running)

    def add(self, group: SequenceGroup) -> None:
        """Puts a group at the end of the queue; its rows must be no more than there are slots."""
        self.waiting.append(group)

    def next_chunk(self) -> PrefillChunk | None:
        """The chunk to compute now; the head of the queue is admitted when its rows are free.

        Nobody overtakes a head that does not fit yet. Where chunks begin and end depends on the
        position in the prompt alone: at multiples of `prefill_chunk`.
        """
        group = self.prefilling or self._admit()
        return None if group is None else self._chunk_of(group)

    def skip(self, chunk: PrefillChunk, tokens: int) -> PrefillChunk:
        """Records that the first `tokens` of a prompt are in its row already.

        They are whole chunks, and not the last of the prompt.

        Returns:
            The chunk to compute instead of `chunk`.
        """
        group = chunk.group
        assert tokens % self.prefill_chunk == 0, "chunks begin where they ever did"
        assert group.prefilled <= tokens < group.prompt_length, "the last chunk is always computed"
        group.prefilled = tokens
        return self._chunk_of(group)

    def complete_chunk(self, chunk: PrefillChunk) -> list[Move]:
        """Records that a chunk was computed.

        Returns:
            After the last chunk, the copies that give each sequence of the group, which runs from
            now on, its prompt. They share one source; the others may be made in any order.
        """
        group = chunk.group
        group.prefilled = chunk.end
        if not chunk.last:
            return []
        first = len(self.running)
        self.prefilling = None
        self.running += [Sequence(group, index, group.prompt_length) for index in range(group.n)]
        return [
            Move(chunk.row, row, group.prompt_length)
            for row in range(first, first + group.n)
            if row != chunk.row
        ]

    def next_sources(self) -> list[SequenceGroup]:
        """The groups whose sources to encode now; each is admitted when its rows are free.

        Nobody overtakes one that does not fit yet. Padded to the longest, the sources take at most
        `prefill_chunk` tokens, so that running sequences do not wait for longer than for a chunk of
        a prompt; one source alone may take more.
        """
        longest = 0
        while self._fits():
            longest = max(longest, self.waiting[0].source_length)
            if self.encoding and longest * (len(self.encoding) + 1) > self.prefill_chunk:
                break
            self.encoding.append(self.waiting.popleft())
        return list(self.encoding)

    def next_rows(self, group: SequenceGroup) -> range:
        """The rows of a group that starts next, each of which needs the encoded source."""
        first = len(self.running)
        return range(first, first + group.n)

    def start(self, group: SequenceGroup) -> None:
        """Lets the sequences of a group run whose source is in the rows that they get."""
        self.encoding.remove(group)
        self.running += [Sequence(group, index, length=0) for index in range(group.n)]

    def fork(self, group: SequenceGroup, parents: list[int]) -> list[Move]:
        """Lets sequences of a running group continue others of it.

        Args:
            parents: for each sequence the index of the one whose row it continues; one that is
                named names itself.

        Returns:
            The copies, without the prompt, which all rows hold. They can be made in any order.
        """
        rows = {s.index: row for row, s in enumerate(self.running) if s.group is group}
        length = self.running[rows[0]].length
        return [
            Move(rows[parent], rows[index], length, start=group.prompt_length)
            for index, parent in enumerate(parents)
            if parent != index and length > group.prompt_length
        ]

    def complete_step(self) -> None:
        """Records that a decode step wrote one position in every running row."""
        for sequence in self.running:
            sequence.length += 1

    def finish(self, sequences: Collection[Sequence]) -> list[Move]:
        """Takes sequences out of their rows; those that do not run are ignored.

        Returns:
            The moves that close the gaps, each from a row beyond those that remain.
        """
        ended = set(sequences)
        kept = sum(sequence not in ended for sequence in self.running)
        gaps = [row for row, sequence in enumerate(self.running[:kept]) if sequence in ended]
        last = [row for row in range(kept, len(self.running)) if self.running[row] not in ended]
        moves = []
        for source, destination in zip(last, gaps, strict=True):
            self.running[destination] = self.running[source]
            moves.append(_relocation(self.running[source], source, destination))
        del self.running[kept:]
        return moves

    def abort(self, group: SequenceGroup) -> list[Move]:
        """Takes a group out, wherever it is; one that has ended is ignored."""
        if group is self.prefilling:
            self.prefilling = None
            return []
        for groups in (self.waiting, self.encoding):
            if group in groups:
                groups.remove(group)
                return []
        return self.finish([sequence for sequence in self.running if sequence.group is group])

    def expired(self, now: float) -> list[SequenceGroup]:
        """The groups whose deadline has passed, waiting or not; they stay until aborted."""
        running = (sequence.group for sequence in self.running)
        groups = [*self.waiting, *self.encoding, *running]
        if self.prefilling is not None:
            groups.append(self.prefilling)
        return [group for group in dict.fromkeys(groups) if group.deadline <= now]

    def _chunk_of(self, group: SequenceGroup) -> PrefillChunk:
        boundary = (group.prefilled // self.prefill_chunk + 1) * self.prefill_chunk
        return PrefillChunk(
            group, self._prefill_row, group.prefilled, min(boundary, group.prompt_length)
        )

    def _admit(self) -> SequenceGroup | None:
        """Reserves rows for the head of the queue, if there are enough."""
        if not self._fits():
            return None
        self.prefilling = self.waiting.popleft()
        self._prefill_row = len(self.running)
        return self.prefilling

    def _fits(self) -> bool:
        """Whether the head of the queue finds all its rows free."""
        return bool(self.waiting) and self.waiting[0].n <= self.slots - self.used_slots


def _relocation(sequence: Sequence, source: int, destination: int) -> Move:
    """The move of a sequence, all that its row holds, to another row."""
    memory = sequence.group.source_length > 0
    return Move(source, destination, sequence.length, memory=memory)
