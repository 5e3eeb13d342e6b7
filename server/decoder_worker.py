"""Continuous batching on the engine's thread: schedule, run, postprocess, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from itertools import compress

import numpy as np
import structlog

from server.beginning import Beginning
from server.careful_steps import decode_carefully
from server.decoder_journal import DecoderJournal
from server.errors import DeadlinePassed, NonFinite, ServerError
from server.generation import Generation, Stream
from server.limits import DecoderLimits
from server.live_requests import LiveRequests
from server.metrics import ModelMetrics
from server.outbox import Outbox
from server.prefix_store import PrefixStore
from server.prompt_prefill import PromptPrefill
from server.request import Ticket
from server.runner import Logits, PromptRunner, SourceRunner
from server.sampler import Choice, sample
from server.scheduler import Move, Scheduler, SequenceGroup
from server.scheduler import Sequence as Row
from server.session import step_error
from server.source_cache import SourceCache
from server.source_encoding import SourceEncoding
from server.trace import Did, Trace
from server.waiting_room import WaitingRoom

_log = structlog.get_logger()
OpenRunner = Callable[[], PromptRunner | SourceRunner]
# Takes rows a token further, given their logits; the rows that end with it.
Extend = Callable[[Sequence[Row], Logits], list[Row]]


class DecoderWorker:
    """What the engine of a decoder does; every method runs on the engine's thread.

    Each iteration computes at most one chunk of a prompt, or one batch of sources, and then one
    decode step for every running row, so that neither starves the other.
    """

    def __init__(
        self,
        open_runner: OpenRunner,
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
        self._outbox = outbox
        self._journal = DecoderJournal(metrics, limits, trace)
        self._scheduler = Scheduler(limits.slots, limits.prefill_chunk)
        self._live = LiveRequests(waiting_room, outbox, self._journal)

    def load(self) -> None:
        """Opens the sessions and runs the largest shapes."""
        self._runner = self._open_runner()
        self._runner.warm_up()
        self._beginning = self._begin_with(self._runner)
        self.provider = self._runner.provider
        self._journal.ready()
        self._publish()

    def patience(self) -> float | None:
        """No wait while there is work."""
        return None if self._scheduler.idle else 0.0

    def accept(self, generation: Generation) -> None:
        """Takes a request that has a place in the waiting room."""
        self._live.accept(generation)
        self._scheduler.add(generation.group)

    def cancel(self, ticket: Ticket) -> None:
        """Forgets a request whose caller has gone; one that has ended is ignored."""
        if generation := self._live.find(ticket):
            self._live.forget(generation)
            self._free_rows(generation)

    def iterate(self) -> None:
        """Ends what has expired; then a part of beginning, one step, and the news of both."""
        for group in self._scheduler.expired(time.monotonic()):
            self._fail(self._live.of(group), DeadlinePassed("the request's time is up"))
        self._begin()
        if self._scheduler.running:
            self._decode()
        self._publish()
        self._outbox.flush()
        self._journal.next_step()

    def abandon(self, error: ServerError) -> None:
        """Ends every request with an error; nothing is computed any more."""
        for generation in self._live:
            self._scheduler.abort(generation.group)
            self._live.abandon(generation, error)
        self._publish()
        self._outbox.flush()

    def _begin_with(self, runner: PromptRunner | SourceRunner) -> Beginning:
        """How requests begin with what there is to compute."""
        common = (self._scheduler, self._journal, self._live.let_in)
        if isinstance(runner, SourceRunner):
            known = SourceCache(runner, self._limits, self._metrics)
            return SourceEncoding(runner, known, *common)
        prefixes = PrefixStore(runner, self._limits, self._metrics)
        return PromptPrefill(runner, prefixes, *common)

    def _begin(self) -> None:
        """Takes the requests that are to run next a part further towards that."""
        begun = self._beginning.advance()
        for generation, error in begun.failed.items():
            self._fail(generation, error)
        self._move(begun.moves)
        if begun.rows:
            self._extend(begun.rows, begun.logits)

    def _decode(self) -> None:
        rows = list(self._scheduler.running)
        tokens = [self._live.of(row.group).next_token(row.index, row.length) for row in rows]
        began = time.monotonic()
        logits, errors = decode_carefully(self._runner, tokens, [row.length for row in rows])
        self._journal.ran("decode", began, sequences=len(rows), tokens=len(rows))
        self._journal.record(Did.DECODE, *(self._live.of(row.group).ticket for row in rows))
        self._scheduler.complete_step()
        if errors:
            for index, error in errors.items():
                self._fail_row(rows[index], error)
            alive = [row.group in self._live for row in rows]
            rows, logits = list(compress(rows, alive)), logits[alive]
        if rows:
            self._extend(rows, logits)

    def _extend(self, rows: Sequence[Row], logits: Logits) -> None:
        """Takes each row a token further, and takes out the rows that end with it."""
        ways: dict[Extend, list[int]] = {}
        for index, row in enumerate(rows):
            ways.setdefault(self._way_on(row), []).append(index)
        ended: list[Row] = []
        for extend, indices in ways.items():
            theirs = logits if len(indices) == len(rows) else logits[indices]
            ended += extend([rows[index] for index in indices], theirs)
        self._move(self._scheduler.finish(ended))

    def _way_on(self, row: Row) -> Extend:
        generation = self._live.of(row.group)
        if row.length < row.group.prompt_length or generation.scores_only:
            return self._read_prompts
        return self._extend_streams if generation.beams is None else self._extend_beams

    def _read_prompts(self, rows: Sequence[Row], logits: Logits) -> list[Row]:
        """Scores the next token of each prompt, where that is asked for; the rows that are done.

        It is an encoder-decoder's prompts that are read here; a decoder's have been, and come here
        only where nothing is to follow.
        """
        ended: list[Row] = []
        failed: list[Generation] = []
        for row, following in zip(rows, logits[:, np.newaxis], strict=True):  # [1, vocab] each
            generation = self._live.of(row.group)
            if row.length == row.group.prompt_length:
                self._live.tell(generation, *generation.empty_completions())
                self._live.succeed(generation, time.monotonic())
                ended.append(row)
            elif row.index == 0 and generation.request.output.prompt_logprobs:
                try:
                    generation.score_prompt(row.length - 1, following)
                except NonFinite:
                    failed.append(generation)
        for generation in failed:
            self._fail(generation, NonFinite())
        return ended

    def _extend_streams(self, rows: Sequence[Row], logits: Logits) -> list[Row]:
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
            if row.group in self._live
        ]
        ended = [
            row
            for row, choice in going
            if row.group in self._live and self._accept_token(row, choice, now)
        ]
        self._journal.generated(len(going))
        return ended

    def _accept_token(self, row: Row, choice: Choice, now: float) -> bool:
        """Adds a token to its completion and tells of it; whether the completion ends with it."""
        generation = self._live.of(row.group)
        stream = generation.streams[row.index]
        if stream.last_token_at is not None:
            self._journal.next_token(now - stream.last_token_at)
        self._live.note_first_token(generation, now)
        try:
            events = stream.accept(choice, now)
        except Exception as error:
            self._fail_to_take(generation, error)
            return False
        self._live.tell(generation, *events)
        if stream.finished and generation.complete:
            self._live.succeed(generation, now)
        return stream.finished

    def _extend_beams(self, rows: Sequence[Row], logits: Logits) -> list[Row]:
        """Takes each search a token further; the rows of those that end with it."""
        rows_of: dict[SequenceGroup, list[int]] = {}
        for index in sorted(range(len(rows)), key=lambda index: rows[index].index):
            rows_of.setdefault(rows[index].group, []).append(index)
        return [
            rows[index]
            for group, indices in rows_of.items()
            if self._extend_search(self._live.of(group), logits[indices])
            for index in indices
        ]

    def _extend_search(self, generation: Generation, logits: Logits) -> bool:
        """Adds a token to every beam, `logits` in their order; whether the search ends with it."""
        beams = generation.beams
        assert beams is not None, "the request does not search"
        if not np.isfinite(logits).all():
            self._fail(generation, NonFinite())
            return False
        began = time.monotonic()
        try:
            parents = beams.extend(logits)
        except Exception as error:
            self._fail_to_take(generation, error)
            return False
        now = time.monotonic()
        self._journal.sampled(now - began)
        self._live.note_first_token(generation, now)
        if beams.done:
            self._journal.generated(beams.count)
            self._live.tell(generation, *beams.events())
            self._live.succeed(generation, now)
        else:
            self._move(self._scheduler.fork(generation.group, parents))
        return beams.done

    def _fail_row(self, row: Row, error: ServerError) -> None:
        """Fails the request of a row, once."""
        if row.group in self._live:
            self._fail(self._live.of(row.group), error)

    def _fail_to_take(self, generation: Generation, error: Exception) -> None:
        """Fails the request that a token raises in; nobody else's tokens have met it."""
        _log.exception("a request has failed over its next token")
        self._fail(generation, step_error(error))

    def _fail(self, generation: Generation, error: ServerError) -> None:
        self._live.fail(generation, error)
        self._free_rows(generation)

    def _free_rows(self, generation: Generation) -> None:
        self._move(self._scheduler.abort(generation.group))

    def _move(self, moves: Collection[Move]) -> None:
        for move in moves:
            self._runner.move(move)

    def _stream(self, row: Row) -> Stream:
        return self._live.of(row.group).streams[row.index]

    def _publish(self) -> None:
        self._journal.publish(self._scheduler)
