"""The engine of a decoder, as the services see it: submit, cancel, events on the loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from functools import partial

from server.artefact import Artefact
from server.careful_runner import Runner
from server.decoder_runner import DecoderRunner
from server.decoder_worker import DecoderWorker
from server.engine_thread import EngineThread
from server.errors import Draining
from server.generation import Generation
from server.limits import DecoderLimits
from server.metrics import ModelMetrics
from server.outbox import Outbox
from server.request import DeliverGeneration, GenerationRequest, Ticket
from server.tokenizer import Tokenizer
from server.trace import Trace
from server.waiting_room import WaitingRoom


class DecoderEngine:
    """Generates for many requests at once; used by the event loop's thread.

    Args:
        artefact: of a decoder, verified.
        tokenizer: the artefact's.
        loop: where events are delivered.
        device_index: which GPU, where the artefact is for one.
        threads: that one run may use on the CPU.
        trace: records what the engine does; None does not.
        open_runner: what computes, opened on the engine's thread; None is the artefact's graphs.
    """

    def __init__(
        self,
        artefact: Artefact,
        tokenizer: Tokenizer,
        limits: DecoderLimits,
        metrics: ModelMetrics,
        loop: asyncio.AbstractEventLoop,
        *,
        device_index: int = 0,
        threads: int = 1,
        trace: Trace | None = None,
        open_runner: Callable[[], Runner] | None = None,
    ) -> None:
        manifest = artefact.manifest
        self._limits = limits
        self._tokenizer = tokenizer
        self._vocabulary_size = manifest.vocabulary_size
        self._waiting_room = WaitingRoom(limits.max_queue, limits.max_queue_tokens)
        self._worker = DecoderWorker(
            open_runner
            or partial(DecoderRunner, artefact, limits, device_index=device_index, threads=threads),
            limits,
            metrics,
            self._waiting_room,
            Outbox(loop),
            trace,
        )
        self._thread = EngineThread(f"decode {manifest.name}", self._worker)
        self._draining = False

    @property
    def alive(self) -> bool:
        """Whether requests are worked on."""
        return self._thread.alive

    @property
    def provider(self) -> str:
        """The execution provider that really runs the model; empty before `start`."""
        return self._worker.provider

    @property
    def capacity(self) -> int:
        """Positions of one slot, prompt and completion together."""
        return self._limits.capacity

    @property
    def slots(self) -> int:
        """Completions that are generated at the same time."""
        return self._limits.slots

    def start(self) -> None:
        """Loads and warms up; blocks until the engine is ready.

        Raises:
            ArtefactError, DeviceError: as `open_session`.
        """
        self._thread.start()

    def submit(self, request: GenerationRequest, deliver: DeliverGeneration) -> Ticket:
        """Accepts a request; its events are delivered on the loop, the last one exactly once.

        Raises:
            InvalidInput, InputTooLong: it could never run.
            QueueFull, QueueTokensFull: too much waits already.
            Draining: the engine accepts nothing more.
        """
        if self._draining:
            raise Draining("the server is stopping")
        now = time.monotonic()
        prompt_length = len(request.prompt)
        self._limits.check(prompt_length, request.rows)
        latest = now + self._limits.max_request_seconds
        generation = Generation(
            request,
            deliver,
            self._tokenizer,
            self._vocabulary_size,
            self._limits.capacity,
            min(latest, math.inf if request.deadline is None else request.deadline),
            now,
        )
        self._waiting_room.enter(prompt_length)
        try:
            self._thread.post(partial(self._worker.accept, generation))
        except Draining:
            self._waiting_room.leave(prompt_length)
            raise
        return generation.ticket

    def cancel(self, ticket: Ticket) -> None:
        """Ends a request without any further event; frees its slot before the next step."""
        ticket.cancelled = True
        with contextlib.suppress(Draining):
            self._thread.post(partial(self._worker.cancel, ticket))

    def drain(self) -> None:
        """Accepts nothing more; what was accepted goes on."""
        self._draining = True

    def stop(self) -> None:
        """Ends the engine after its current step and what is left with `Interrupted`; blocks."""
        self._draining = True
        self._thread.stop()
