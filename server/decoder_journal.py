"""What the engine of a decoder has done, told as metrics and, where one is kept, as a trace."""

from __future__ import annotations

import time

from server.errors import NonFinite, ServerError
from server.generation import Generation
from server.limits import DecoderLimits
from server.metrics import ModelMetrics
from server.request import Ticket
from server.scheduler import Scheduler
from server.trace import Did, Trace


class DecoderJournal:
    """Written by the engine's thread; what each method tells of is its name."""

    def __init__(self, metrics: ModelMetrics, limits: DecoderLimits, trace: Trace | None) -> None:
        self._metrics = metrics
        self._limits = limits
        self._trace = trace

    def ready(self) -> None:
        """Requests are worked on from now on."""
        row = self._limits.capacity + self._limits.source_capacity
        self._metrics.cache_capacity_tokens.set(self._limits.slots * row)

    def accepted(self, generation: Generation) -> None:
        prompt_tokens = generation.request.input_tokens
        self._metrics.tokens["prompt"].inc(prompt_tokens)
        self._metrics.request_prompt_tokens.observe(prompt_tokens)
        self.record(Did.ACCEPT, generation.ticket)

    def cancelled(self, generation: Generation) -> None:
        stage = "queued" if generation.began_at is None else "running"
        self._metrics.requests_cancelled[stage].inc()
        self.record(Did.CANCEL, generation.ticket)

    def failed(self, generation: Generation, error: ServerError) -> None:
        if isinstance(error, NonFinite):
            self._metrics.nonfinite_outputs.inc()
        self.record(Did.FAIL, generation.ticket)

    def succeeded(self, generation: Generation) -> None:
        self._metrics.request_generated_tokens.observe(generation.generated_tokens)
        self.record(Did.SUCCEED, generation.ticket)

    def ran(self, phase: str, began: float, *, sequences: int, tokens: int) -> None:
        """A run of the graph that `began` then has come back."""
        self._metrics.step_duration[phase].observe(time.monotonic() - began)
        self._metrics.engine_steps[phase].inc()
        self._metrics.batch_sequences[phase].observe(sequences)
        self._metrics.batch_tokens[phase].observe(tokens)

    def sampled(self, seconds: float) -> None:
        self._metrics.sampling_duration.observe(seconds)

    def generated(self, tokens: int) -> None:
        self._metrics.tokens["generated"].inc(tokens)

    def first_token(self, seconds: float) -> None:
        self._metrics.time_to_first_token.observe(seconds)

    def next_token(self, seconds: float) -> None:
        self._metrics.inter_token_latency.observe(seconds)

    def publish(self, scheduler: Scheduler) -> None:
        """How things stand after an iteration."""
        used = scheduler.used_slots
        self._metrics.slots["used"].set(used)
        self._metrics.slots["free"].set(self._limits.slots - used)
        self._metrics.cache_tokens.set(scheduler.cached_positions)

    def next_step(self) -> None:
        """Another iteration begins."""
        if self._trace is not None:
            self._trace.step += 1

    def record(self, did: Did, *tickets: Ticket, span: tuple[int, ...] = ()) -> None:
        if self._trace is not None:
            self._trace.record(did, *tickets, span=span)
