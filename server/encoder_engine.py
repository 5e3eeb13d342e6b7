"""The engine of an encoder, as the services see it: submit, cancel, outcomes on the loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Sequence
from functools import partial

from server.artefact import Artefact
from server.embed_call import EmbedCall
from server.encoder_runner import EncoderRunner
from server.encoder_worker import EncoderWorker, Runner
from server.engine_thread import EngineThread
from server.errors import Draining
from server.limits import EncoderLimits
from server.metrics import ModelMetrics
from server.outbox import Outbox
from server.request import DeliverEmbedding, EmbedItem, Ticket
from server.trace import Trace
from server.waiting_room import WaitingRoom


class EncoderEngine:
    """Embeds the texts of many calls together; used by the event loop's thread.

    Args:
        artefact: of an encoder, verified.
        loop: where outcomes are delivered.
        device_index: which GPU, where the artefact is for one.
        threads: that one run may use on the CPU.
        trace: records what the engine does; None does not.
        open_runner: what computes, opened on the engine's thread; None is the artefact's graph.
    """

    def __init__(
        self,
        artefact: Artefact,
        limits: EncoderLimits,
        metrics: ModelMetrics,
        loop: asyncio.AbstractEventLoop,
        *,
        device_index: int = 0,
        threads: int = 1,
        trace: Trace | None = None,
        open_runner: Callable[[], Runner] | None = None,
    ) -> None:
        pooling = artefact.manifest.pooling
        self.dimensions = pooling.dimensions if pooling else 0
        self._limits = limits
        self._waiting_room = WaitingRoom(limits.max_queue, limits.max_queue_tokens)
        self._worker = EncoderWorker(
            open_runner
            or partial(EncoderRunner, artefact, limits, device_index=device_index, threads=threads),
            limits,
            metrics,
            self._waiting_room,
            Outbox(loop),
            trace,
        )
        self._thread = EngineThread(f"encode {artefact.manifest.name}", self._worker)
        self._draining = False

    @property
    def alive(self) -> bool:
        """Whether calls are worked on."""
        return self._thread.alive

    @property
    def provider(self) -> str:
        """The execution provider that really runs the model; empty before `start`."""
        return self._worker.provider

    def start(self) -> None:
        """Loads and warms up; blocks until the engine is ready.

        Raises:
            ArtefactError, DeviceError: as `open_session`.
        """
        self._thread.start()

    def submit(
        self, items: Sequence[EmbedItem], deliver: DeliverEmbedding, deadline: float | None
    ) -> Ticket:
        """Accepts a call of at least one text; its outcome is delivered on the loop, once.

        Args:
            deadline: on the monotonic clock, in seconds; None without one.

        Raises:
            InvalidInput, InputTooLong: a text has no tokens, or too many.
            QueueFull, QueueTokensFull: too much waits already.
            Draining: the engine accepts nothing more.
        """
        if self._draining:
            raise Draining("the server is stopping")
        self._limits.check([len(item.ids) for item in items])
        now = time.monotonic()
        latest = now + self._limits.max_request_seconds
        call = EmbedCall(
            items, deliver, min(latest, math.inf if deadline is None else deadline), now
        )
        self._waiting_room.enter(call.tokens)
        try:
            self._thread.post(partial(self._worker.accept, call))
        except Draining:
            self._waiting_room.leave(call.tokens)
            raise
        return call.ticket

    def cancel(self, ticket: Ticket) -> None:
        """Ends a call without an outcome; those of its texts that wait are not computed."""
        ticket.cancelled = True
        with contextlib.suppress(Draining):
            self._thread.post(partial(self._worker.cancel, ticket))

    def drain(self) -> None:
        """Accepts nothing more; what was accepted goes on."""
        self._draining = True

    def stop(self) -> None:
        """Ends the engine after its current batch and what is left with `Interrupted`; blocks."""
        self._draining = True
        self._thread.stop()
