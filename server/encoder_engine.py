"""The engine of an encoder, as the services see it: submit, cancel, outcomes on the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from server.artefact import Artefact
from server.embed_call import EmbedCall
from server.encoder_runner import EncoderRunner
from server.encoder_worker import EncoderWorker
from server.engine import Engine
from server.limits import EncoderLimits
from server.metrics import ModelMetrics
from server.outbox import Outbox
from server.request import DeliverEmbedding, EmbedItem, Ticket
from server.runner import TextRunner
from server.shared_session import SharedSession
from server.trace import Trace
from server.waiting_room import WaitingRoom


class EncoderEngine(Engine[EncoderWorker]):
    """Embeds the texts of many calls together.

    Args:
        artefact: of a model that embeds, verified.
        loop: where outcomes are delivered.
        device_index: which GPU, where the artefact is for one.
        threads: that one run may use on the CPU.
        session: the encoder's, where another engine runs it, too; None opens one.
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
        session: SharedSession | None = None,
        trace: Trace | None = None,
        open_runner: Callable[[], TextRunner] | None = None,
    ) -> None:
        pooling = artefact.manifest.pooling
        self.dimensions = pooling.dimensions if pooling else 0
        self._limits = limits
        waiting_room = WaitingRoom(limits.max_queue, limits.max_queue_tokens, metrics.queue_depth)
        worker = EncoderWorker(
            open_runner
            or partial(
                EncoderRunner,
                artefact,
                limits,
                device_index=device_index,
                threads=threads,
                session=session,
            ),
            limits,
            metrics,
            waiting_room,
            Outbox(loop),
            trace,
        )
        name = f"encode {artefact.manifest.name}"
        super().__init__(name, worker, waiting_room, limits.max_request_seconds)

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
        now = time.monotonic()
        self._limits.check([len(item.ids) for item in items])
        call = EmbedCall(items, deliver, self._latest(now, deadline), now)
        self._accept(call.tokens, partial(self._worker.accept, call))
        return call.ticket
