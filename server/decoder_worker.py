"""Continuous batching on the engine's thread: schedule, run, postprocess, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from server.careful_runner import CarefulRunner, Runner
from server.decoder_journal import DecoderJournal
from server.errors import DeadlinePassed, NonFinite, ServerError
from server.generation import Generation, Stream
from server.limits import DecoderLimits
from server.metrics import ModelMetrics
from server.outbox import Outbox
from server.prefix_store import PrefixStore
from server.request import Failed, GenerationEvent, Ticket
from server.sampler import Choice, sample
from server.scheduler import Move, PrefillChunk, Scheduler
from server.scheduler import Sequence as Row
from server.trace import Did, Trace
from server.waiting_room import WaitingRoom


class DecoderWorker:
    """What the engine of a decoder does; every method runs on the engine's thread.

    Each iteration computes at most one prefill chunk and then one decode step for every running
    row, so that neither starves the other.
    """

    def __init__(
        self,
        open_runner: Callable[[], Runner],
        limits: DecoderLimits,
        metrics: ModelMetrics,
        waiting_room: WaitingRoom,
        outbox: Outbox,
        trace: Trace | None,
    ) -> None:
        self.provider = ""
        self._open_runner = open_runner
        self._limits = limits
        self._metrics = metrics
        self._waiting_room = waiting_room
        self._outbox = outbox
        self._journal = DecoderJournal(metrics, limits, trace)
        self._scheduler = Scheduler(limits.slots, limits.prefill_chunk)
        self._live: dict[object, Generation] = {}

    def load(self) -> None:
        """Opens the sessions and runs the largest shapes."""
        self._runner = CarefulRunner(self._open_runner())
        self._runner.warm_up()
        self._prefixes = PrefixStore(self._runner, self._limits, self._metrics)
        self.provider = self._runner.provider
        self._journal.ready()
        self._publish()

    def patience(self) -> float | None:
        """No wait while there is work."""
        return None if self._scheduler.idle else 0.0

    def accept(self, generation: Generation) -> None:
        """Takes a request that has a place in the waiting room."""
        self._live[generation.ticket] = generation
        self._scheduler.add(generation.group)
        self._journal.accepted(generation)

    def cancel(self, ticket: Ticket) -> None:
        """Forgets a request whose caller has gone; one that has ended is ignored."""
        if generation := self._live.get(ticket):
            self._journal.cancelled(generation)
            self._take_out(generation)

    def iterate(self) -> None:
        """Ends what has expired; then at most one chunk, one step, and the news of both."""
        for group in self._scheduler.expired(time.monotonic()):
            self._fail(self._live[group.key], DeadlinePassed("the request's time is up"))
        if chunk := self._scheduler.next_chunk():
            self._prefill(self._begin(chunk) if chunk.start == 0 else chunk)
        if self._scheduler.running:
            self._decode()
        self._publish()
        self._outbox.flush()
        self._journal.next_step()

    def abandon(self, error: ServerError) -> None:
        """Ends every request with an error; nothing is computed any more."""
        for generation in self._live.values():
            self._leave_queue(generation)
            self._tell(generation, Failed(error))
        self._live.clear()
        self._scheduler = Scheduler(self._limits.slots, self._limits.prefill_chunk)
        self._publish()
        self._outbox.flush()

    def _begin(self, chunk: PrefillChunk) -> PrefillChunk:
        """Lets a request in; the chunk to compute first, behind what is known of its prompt."""
        generation = self._live[chunk.group.key]
        self._leave_queue(generation)
        generation.began_at = time.monotonic()
        reused = self._prefixes.restore(generation.request, chunk.row)
        if not reused:
            return chunk
        generation.cached_tokens = reused
        self._journal.record(Did.REUSE, generation.ticket, span=(0, reused))
        return self._scheduler.skip(chunk, reused)

    def _prefill(self, chunk: PrefillChunk) -> None:
        generation = self._live[chunk.group.key]
        try:
            logits = self._compute(generation, chunk)
        except ServerError as error:
            self._fail(generation, error)
            return
        self._prefixes.keep(generation.request, chunk.row, chunk.start, chunk.end)
        self._move(self._scheduler.complete_chunk(chunk))
        if not chunk.last:
            return
        rows = self._scheduler.running[-chunk.group.n :]
        if generation.request.stopping.max_new_tokens == 0:
            self._tell(generation, *generation.empty_completions())
            self._succeed(generation, time.monotonic())
            self._move(self._scheduler.finish(rows))
        else:
            self._extend(rows, np.repeat(logits, len(rows), axis=0))

    def _compute(self, generation: Generation, chunk: PrefillChunk) -> NDArray[np.float32]:
        """The logits of a prompt's last token, `[1, vocab]`, or `[0, vocab]` before the last chunk.

        Raises:
            StepFailed, OverLimit, NonFinite: the request has failed.
        """
        request = generation.request
        if request.output.prompt_logprobs:
            logits = self._run_chunk(generation, chunk, chunk.end - chunk.start)
            generation.score_prompt(chunk, logits)
            if not chunk.last or request.stopping.max_new_tokens == 0:
                return logits[:0]
        # A last chunk whose tokens are scored is run once more, for the last token alone: for one
        # row the output head takes another kernel than for many, and what is reported must not
        # change what is generated.
        return self._run_chunk(generation, chunk, int(chunk.last))

    def _run_chunk(
        self, generation: Generation, chunk: PrefillChunk, logits: int
    ) -> NDArray[np.float32]:
        ids = generation.request.prompt[chunk.start : chunk.end]
        began = time.monotonic()
        computed = self._runner.prefill(chunk.row, ids, chunk.start, logits=logits)
        self._journal.ran("prefill", began, sequences=1, tokens=len(ids))
        self._journal.record(Did.PREFILL, generation.ticket, span=(chunk.start, chunk.end))
        return computed

    def _decode(self) -> None:
        rows = list(self._scheduler.running)
        tokens = [self._live[row.group.key].last_token(row.index) for row in rows]
        began = time.monotonic()
        logits, errors = self._runner.decode(tokens, [row.length for row in rows])
        self._journal.ran("decode", began, sequences=len(rows), tokens=len(rows))
        self._journal.record(Did.DECODE, *(self._live[row.group.key].ticket for row in rows))
        self._scheduler.complete_step()
        if errors:
            for index, error in errors.items():
                self._fail_row(rows[index], error)
            alive = [row.group.key in self._live for row in rows]
            rows, logits = list(compress(rows, alive)), logits[alive]
        if rows:
            self._extend(rows, logits)

    def _extend(self, rows: Sequence[Row], logits: NDArray[np.float32]) -> None:
        """Chooses the next token of each row, and takes out the rows that end with it."""
        ended: list[Row] = []
        searching = np.array([self._live[row.group.key].beams is not None for row in rows])
        if searching.any():
            ended += self._extend_beams(list(compress(rows, searching)), logits[searching])
            rows, logits = list(compress(rows, ~searching)), logits[~searching]
        if rows:
            ended += self._extend_streams(rows, logits)
        self._move(self._scheduler.finish(ended))

    def _extend_streams(self, rows: Sequence[Row], logits: NDArray[np.float32]) -> list[Row]:
        """Samples a token for each row; the rows that end with it."""
        began = time.monotonic()
        choices = sample(logits, [self._stream(row).sampling for row in rows])
        now = time.monotonic()
        self._journal.sampled(now - began)
        for row, choice in zip(rows, choices, strict=True):
            if not choice.finite:
                self._fail_row(row, NonFinite())
        going = [
            (row, choice)
            for row, choice in zip(rows, choices, strict=True)
            if row.group.key in self._live
        ]
        ended = [row for row, choice in going if self._accept_token(row, choice, now)]
        self._journal.generated(len(going))
        return ended

    def _accept_token(self, row: Row, choice: Choice, now: float) -> bool:
        """Adds a token to its completion and tells of it; whether the completion ends with it."""
        generation = self._live[row.group.key]
        stream = generation.streams[row.index]
        if stream.last_token_at is not None:
            self._journal.next_token(now - stream.last_token_at)
        self._note_first_token(generation, now)
        self._tell(generation, *stream.accept(choice, now))
        if stream.finished and generation.complete:
            self._succeed(generation, now)
        return stream.finished

    def _extend_beams(self, rows: Sequence[Row], logits: NDArray[np.float32]) -> list[Row]:
        """Takes each search a token further; the rows of those that end with it."""
        rows_of: dict[object, list[int]] = {}
        for index in sorted(range(len(rows)), key=lambda index: rows[index].index):
            rows_of.setdefault(rows[index].group.key, []).append(index)
        return [
            rows[index]
            for key, indices in rows_of.items()
            if self._extend_search(self._live[key], logits[indices])
            for index in indices
        ]

    def _extend_search(self, generation: Generation, logits: NDArray[np.float32]) -> bool:
        """Adds a token to every beam, `logits` in their order; whether the search ends with it."""
        beams = generation.beams
        assert beams is not None, "the request does not search"
        if not np.isfinite(logits).all():
            self._fail(generation, NonFinite())
            return False
        began = time.monotonic()
        parents = beams.extend(logits)
        now = time.monotonic()
        self._journal.sampled(now - began)
        self._note_first_token(generation, now)
        if beams.done:
            self._journal.generated(beams.count)
            self._tell(generation, *beams.events())
            self._succeed(generation, now)
        else:
            self._move(self._scheduler.fork(generation.group, parents))
        return beams.done

    def _note_first_token(self, generation: Generation, now: float) -> None:
        if generation.first_token_at is None:
            generation.first_token_at = now
            self._journal.first_token(now - generation.submitted_at)

    def _succeed(self, generation: Generation, now: float) -> None:
        self._journal.succeeded(generation)
        self._tell(generation, generation.summary(now))
        del self._live[generation.ticket]

    def _fail_row(self, row: Row, error: ServerError) -> None:
        """Fails the request of a row, once."""
        if generation := self._live.get(row.group.key):
            self._fail(generation, error)

    def _fail(self, generation: Generation, error: ServerError) -> None:
        self._journal.failed(generation, error)
        self._tell(generation, Failed(error))
        self._take_out(generation)

    def _take_out(self, generation: Generation) -> None:
        """Frees everything that a request holds."""
        self._leave_queue(generation)
        del self._live[generation.ticket]
        self._move(self._scheduler.abort(generation.group))

    def _leave_queue(self, generation: Generation) -> None:
        """Gives the request's place in the waiting room back, if it still has one."""
        if generation.began_at is None:
            self._waiting_room.leave(len(generation.request.prompt))

    def _move(self, moves: Collection[Move]) -> None:
        for move in moves:
            self._runner.move(move.source, move.destination, move.start, move.length)

    def _stream(self, row: Row) -> Stream:
        return self._live[row.group.key].streams[row.index]

    def _tell(self, generation: Generation, *events: GenerationEvent) -> None:
        for event in events:
            self._outbox.add(generation.ticket, generation.deliver, event)

    def _publish(self) -> None:
        self._journal.publish(self._scheduler, self._waiting_room.requests)
