"""Batching of texts on the engine's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import structlog
from numpy.typing import NDArray

from server.embed_call import EmbedCall
from server.engine_thread import EngineDead
from server.errors import DeadlinePassed, NonFinite, ServerError
from server.limits import EncoderLimits
from server.metrics import ModelMetrics
from server.outbox import Outbox
from server.request import EmbedOutcome, EmbedResult, Failed, Ticket
from server.runner import TextRunner
from server.session import step_error
from server.text_queue import QueuedText, TextQueue
from server.trace import Did, Trace
from server.waiting_room import WaitingRoom

_log = structlog.get_logger()


class EncoderWorker:
    """What the engine of an encoder does; every method runs on the engine's thread."""

    def __init__(
        self,
        open_runner: Callable[[], TextRunner],
        limits: EncoderLimits,
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
        self._trace = trace
        self._queue = TextQueue(limits.max_batch_tokens)
        self._live: dict[object, EmbedCall] = {}

    def load(self) -> None:
        """Opens the session and runs the largest shapes."""
        self._runner = self._open_runner()
        self._runner.warm_up()
        self.provider = self._runner.provider

    def patience(self) -> float | None:
        """None without texts; else how long the head of the queue still waits for others."""
        if (head := self._queue.head) is None:
            return None
        if self._queue.fills_a_batch:
            return 0.0
        waited = time.monotonic() - self._live[head.call].submitted_at
        return max(0.0, self._limits.max_wait_seconds - waited)

    def accept(self, call: EmbedCall) -> None:
        """Takes a call that has a place in the waiting room."""
        self._live[call.ticket] = call
        self._queue.add(call.ticket, [len(item.ids) for item in call.items])
        self._record(Did.ACCEPT, call.ticket)

    def cancel(self, ticket: Ticket) -> None:
        """Forgets a call whose caller has gone; one that has ended is ignored."""
        if (call := self._live.get(ticket)) is None:
            return
        stage = "queued" if call.began_at is None else "running"
        self._metrics.requests_cancelled[stage].inc()
        self._record(Did.CANCEL, ticket)
        self._take_out(call)

    def iterate(self) -> None:
        """Ends what has expired, then encodes one batch if it is time."""
        now = time.monotonic()
        for call in [call for call in self._live.values() if call.deadline <= now]:
            self._record(Did.FAIL, call.ticket)
            self._tell(call, Failed(DeadlinePassed("the request's time is up")))
            self._take_out(call)
        if self.patience() == 0:
            self._encode(self._queue.take())
        self._outbox.flush()
        if self._trace is not None:
            self._trace.step += 1

    def abandon(self, error: ServerError) -> None:
        """Ends every call with an error; nothing is computed any more."""
        for call in list(self._live.values()):
            self._tell(call, Failed(error))
            self._take_out(call)
        self._outbox.flush()

    def _encode(self, batch: Sequence[QueuedText]) -> None:
        began = time.monotonic()
        self._leave_queue(batch, began)
        self._record(Did.ENCODE, *(self._live[text.call].ticket for text in batch))
        results = self._run(batch)
        self._observe(batch, began)
        for text, result in zip(batch, results, strict=True):
            self._live[text.call].results[text.index] = result
        now = time.monotonic()
        for key in dict.fromkeys(text.call for text in batch):
            call = self._live[key]
            if (outcome := call.outcome(now)) is not None:
                self._record(Did.SUCCEED, call.ticket)
                self._tell(call, outcome)
                del self._live[key]

    def _run(self, batch: Sequence[QueuedText]) -> list[EmbedResult]:
        """The results of a batch; where it fails as a whole, of each text alone.

        Raises:
            EngineDead: every text failed, and the model cannot run at all.
        """
        texts = [self._live[text.call].items[text.index].ids for text in batch]
        try:
            return self._results(self._runner.encode(texts))
        except Exception:
            _log.exception("a batch failed and is encoded text by text", texts=len(texts))
        results = [self._run_alone(text) for text in texts]
        if all(result.vector is None for result in results):
            self._probe()
        return results

    def _run_alone(self, text: Sequence[int]) -> EmbedResult:
        try:
            return self._results(self._runner.encode([text]))[0]
        except Exception as error:
            _log.exception("a text failed alone", tokens=len(text))
            return EmbedResult(None, step_error(error))

    def _results(self, vectors: NDArray[np.float32]) -> list[EmbedResult]:
        finite: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(vectors), axis=1)
        self._metrics.nonfinite_outputs.inc(int(len(vectors) - finite.sum()))
        return [
            EmbedResult(memoryview(vector)) if good else EmbedResult(None, NonFinite())
            for vector, good in zip(vectors, finite, strict=True)
        ]

    def _probe(self) -> None:
        try:
            self._runner.probe()
        except Exception as error:
            raise EngineDead("the model fails whatever it is given") from error

    def _leave_queue(self, batch: Sequence[QueuedText], now: float) -> None:
        """Gives a call's place in the waiting room back with its last text."""
        for text in batch:
            call = self._live[text.call]
            call.waiting -= 1
            if not call.waiting:
                self._waiting_room.leave(call.tokens)
            if call.began_at is None:
                call.began_at = now

    def _take_out(self, call: EmbedCall) -> None:
        """Frees everything that a call holds."""
        if call.waiting:
            self._waiting_room.leave(call.tokens)
        self._queue.remove(call.ticket)
        del self._live[call.ticket]

    def _tell(self, call: EmbedCall, event: EmbedOutcome | Failed) -> None:
        self._outbox.add(call.ticket, call.deliver, event)

    def _record(self, did: Did, *tickets: Ticket) -> None:
        if self._trace is not None:
            self._trace.record(did, *tickets)

    def _observe(self, batch: Sequence[QueuedText], began: float) -> None:
        tokens = sum(text.length for text in batch)
        self._metrics.step_duration["encode"].observe(time.monotonic() - began)
        self._metrics.engine_steps["encode"].inc()
        self._metrics.batch_sequences["encode"].observe(len(batch))
        self._metrics.batch_tokens["encode"].observe(tokens)
        self._metrics.tokens["embedded"].inc(tokens)
