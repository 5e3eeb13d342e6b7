"""The engine of a decoder, as the services see it: submit, cancel, events on the loop."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from server.artefact import Artefact
from server.decoder_runner import DecoderRunner
from server.decoder_worker import DecoderWorker, OpenRunner
from server.engine import Engine
from server.generation import Generation
from server.limits import DecoderLimits
from server.metrics import ModelMetrics
from server.outbox import Outbox
from server.request import DeliverGeneration, GenerationRequest, Ticket
from server.seq2seq_runner import Seq2seqRunner
from server.shared_session import SharedSession
from server.tokenizer import Tokenizer
from server.trace import Trace
from server.waiting_room import WaitingRoom


class DecoderEngine(Engine[DecoderWorker]):
    """Generates for many requests at once.

    Args:
        artefact: of a decoder or an encoder-decoder, verified.
        tokenizer: of what is generated.
        loop: where events are delivered.
        device_index: which GPU, where the artefact is for one.
        threads: that one run may use on the CPU.
        encoder: the session of an encoder-decoder's encoder, where another engine runs it, too;
            None opens one.
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
        encoder: SharedSession | None = None,
        trace: Trace | None = None,
        open_runner: OpenRunner | None = None,
    ) -> None:
        manifest = artefact.manifest
        self._limits = limits
        self._tokenizer = tokenizer
        self._vocabulary_size = manifest.vocabulary_size
        waiting_room = WaitingRoom(limits.max_queue, limits.max_queue_tokens, metrics.queue_depth)
        make = (
            partial(Seq2seqRunner, encoder=encoder)
            if manifest.kind == "encoder_decoder"
            else DecoderRunner
        )
        worker = DecoderWorker(
            open_runner
            or partial(make, artefact, limits, device_index=device_index, threads=threads),
            limits,
            metrics,
            waiting_room,
            Outbox(loop),
            trace,
        )
        name = f"decode {manifest.name}"
        super().__init__(name, worker, waiting_room, limits.max_request_seconds)

    @property
    def capacity(self) -> int:
        """Positions of one slot, prompt and completion together."""
        return self._limits.capacity

    @property
    def slots(self) -> int:
        """Completions that are generated at the same time."""
        return self._limits.slots

    def submit(self, request: GenerationRequest, deliver: DeliverGeneration) -> Ticket:
        """Accepts a request; its events are delivered on the loop, the last one exactly once.

        Raises:
            InvalidInput, InputTooLong: it could never run.
            QueueFull, QueueTokensFull: too much waits already.
            Draining: the engine accepts nothing more.
        """
        now = time.monotonic()
        self._limits.check(len(request.prompt), request.rows, len(request.source))
        generation = Generation(
            request,
            deliver,
            self._tokenizer,
            self._vocabulary_size,
            self._limits.capacity,
            self._latest(now, request.deadline),
            now,
        )
        self._accept(request.input_tokens, partial(self._worker.accept, generation))
        return generation.ticket
