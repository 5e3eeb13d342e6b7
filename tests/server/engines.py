"""Engines on tiny artefacts, with what tests need to see of them and ways to make them fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from server.artefact import Artefact, load_artefact
from server.decoder_engine import DecoderEngine
from server.decoder_runner import DecoderRunner
from server.decoder_worker import OpenRunner
from server.encoder_engine import EncoderEngine
from server.encoder_runner import EncoderRunner
from server.errors import ServerError
from server.limits import DecoderLimits, EncoderLimits
from server.metrics import Metrics
from server.request import (
    Chunk,
    EmbedItem,
    EmbedOutcome,
    Failed,
    Finished,
    GenerationEvent,
    GenerationRequest,
    Sampling,
    Stopping,
    Summary,
    Ticket,
)
from server.runner import PromptRunner
from server.tokenizer import Tokenizer
from server.trace import Did, Trace

Wrap = Callable[[DecoderRunner], PromptRunner]
Logits = NDArray[np.float32]


def request(
    prompt: Sequence[int],
    max_new_tokens: int = 8,
    *,
    seed: int | None = None,
    n: int = 1,
    deadline: float | None = None,
    eos_ids: tuple[int, ...] = (),
) -> GenerationRequest:
    """Greedy, or sampled at temperature 1 with a seed; nothing but the length ends it."""
    sampling = Sampling() if seed is None else Sampling(temperature=1.0, seed=seed)
    stopping = Stopping(max_new_tokens, eos_ids=eos_ids)
    return GenerationRequest(tuple(prompt), sampling, stopping, n=n, deadline=deadline)


class Mailbox:
    """Receives the events of one generation and knows when it has ended."""

    def __init__(self) -> None:
        self.events: list[GenerationEvent] = []
        self.ended = asyncio.Event()
        self._grown = asyncio.Event()

    def __call__(self, event: GenerationEvent) -> None:
        assert not self.ended.is_set(), "nothing comes after the end"
        self.events.append(event)
        self._grown.set()
        if isinstance(event, Summary | Failed):
            self.ended.set()

    async def end(self) -> Summary | Failed:
        """The last event."""
        await asyncio.wait_for(self.ended.wait(), 30)
        last = self.events[-1]
        assert isinstance(last, Summary | Failed)
        return last

    async def tokens_there(self, count: int) -> None:
        """Waits until so many tokens have come."""
        while len(self.tokens()) < count:
            self._grown.clear()
            await asyncio.wait_for(self._grown.wait(), 30)

    async def error(self) -> ServerError:
        """The error that it failed with."""
        end = await self.end()
        assert isinstance(end, Failed), end
        return end.error

    def tokens(self, index: int = 0) -> list[int]:
        chunks = [event for event in self.events if isinstance(event, Chunk)]
        return [token for chunk in chunks if chunk.index == index for token in chunk.token_ids]

    def finished(self) -> list[Finished]:
        return [event for event in self.events if isinstance(event, Finished)]


@dataclass
class Decoding:
    """A running decoder engine."""

    engine: DecoderEngine
    registry: CollectorRegistry
    trace: Trace
    tickets: dict[Mailbox, Ticket] = field(default_factory=dict)

    def submit(self, wanted: GenerationRequest) -> Mailbox:
        mailbox = Mailbox()
        self.tickets[mailbox] = self.engine.submit(wanted, mailbox)
        return mailbox

    def cancel(self, mailbox: Mailbox) -> None:
        self.engine.cancel(self.tickets[mailbox])

    async def tokens(self, wanted: GenerationRequest) -> list[int]:
        """Runs a request to its end; the tokens of its first completion."""
        mailbox = self.submit(wanted)
        end = await mailbox.end()
        assert isinstance(end, Summary), end
        return mailbox.tokens()

    def metric(self, name: str, **labels: str) -> float:
        return metric(self.registry, name, **labels)

    async def quiet(self) -> None:
        """Waits until nothing runs, waits or holds a slot."""
        async with asyncio.timeout(30):
            # Nothing is delivered for a cancelled request: its end shows in the gauges alone.
            while self.metric("slots", state="used") or self.metric("queue_depth"):  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        assert self.metric("cache_tokens") == 0
        assert self.metric("slots", state="free") == self.engine.slots


def metric(registry: CollectorRegistry, name: str, **labels: str) -> float:
    value = registry.get_sample_value(f"formerd_{name}", {"model": "model", **labels})
    assert value is not None, name
    return value


@cache
def artefact(directory: Path) -> Artefact:
    return load_artefact(directory)


@asynccontextmanager
async def decoding(
    directory: Path,
    *,
    slots: int = 4,
    capacity: int = 128,
    prefill_chunk: int = 16,
    max_queue: int = 100,
    max_queue_tokens: int = 10_000,
    max_request_seconds: float = 60.0,
    cached_chunks: int = 0,
    wrap: Wrap = lambda runner: runner,
) -> AsyncIterator[Decoding]:
    """A decoder engine, started; `wrap` stands between it and its runner."""
    source = artefact(directory)
    limits = DecoderLimits(
        slots,
        capacity,
        prefill_chunk,
        max_queue,
        max_queue_tokens,
        max_request_seconds,
        cached_chunks,
    )
    tokenizer = Tokenizer(source.tokenizer, source.manifest.vocabulary_size)
    async with started(
        source, tokenizer, limits, lambda: wrap(DecoderRunner(source, limits))
    ) as it:
        yield it


@asynccontextmanager
async def started(
    source: Artefact, tokenizer: Tokenizer, limits: DecoderLimits, open_runner: OpenRunner
) -> AsyncIterator[Decoding]:
    """An engine that generates."""
    registry, trace = CollectorRegistry(), Trace()
    engine = DecoderEngine(
        source,
        tokenizer,
        limits,
        Metrics(registry, ["model"]).model("model"),
        asyncio.get_running_loop(),
        trace=trace,
        open_runner=open_runner,
    )
    engine.start()
    try:
        yield Decoding(engine, registry, trace)
    finally:
        await asyncio.to_thread(engine.stop)


class FaultyRunner:
    """A runner that can be told to fail, to poison logits, or to pause.

    Attributes:
        poison: tokens; a run that is given one of them raises.
        spoil: tokens; the logits of a row that is given one of them are not finite.
        broken: every run raises, the probe too.
        blind: every run raises, but not the probe.
    """

    def __init__(self, runner: DecoderRunner) -> None:
        self._runner = runner
        self.provider = runner.provider
        self.chunk_bytes = runner.chunk_bytes
        self.move = runner.move
        self.keep_chunk = runner.keep_chunk
        self.restore_chunk = runner.restore_chunk
        self.warm_up = runner.warm_up
        self.poison: Collection[int] = ()
        self.spoil: Collection[int] = ()
        self.broken = False
        self.blind = False
        self.resume = threading.Event()
        self.resume.set()
        self.paused = threading.Event()

    def prefill(self, row: int, ids: Sequence[int], start: int, *, logits: int) -> Logits:
        self._fail(ids)
        computed = self._runner.prefill(row, ids, start, logits=logits)
        return self._spoiled(computed, ids[len(ids) - logits :])

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Logits:
        if not self.resume.is_set():
            self.paused.set()
            assert self.resume.wait(30)
        self._fail(tokens)
        return self._spoiled(self._runner.decode(tokens, lengths), tokens)

    def decode_row(self, row: int, token: int, length: int) -> Logits:
        self._fail([token])
        return self._spoiled(self._runner.decode_row(row, token, length), [token])

    def probe(self, row: int) -> None:
        if self.broken:
            raise RuntimeError("injected")
        self._runner.probe(row)

    def pause(self) -> None:
        """Holds the engine at its next decode step until `resume` is set."""
        self.paused.clear()
        self.resume.clear()

    def _fail(self, ids: Sequence[int]) -> None:
        if self.broken or self.blind or set(ids) & set(self.poison):
            raise RuntimeError("injected")

    def _spoiled(self, logits: Logits, tokens: Sequence[int]) -> Logits:
        for row in range(len(logits)):
            if tokens[row] in self.spoil:
                logits[row, 3] = np.nan
        return logits


class Fault:
    """Makes a `FaultyRunner` and keeps it at hand."""

    runner: FaultyRunner

    def __call__(self, runner: DecoderRunner) -> FaultyRunner:
        self.runner = FaultyRunner(runner)
        return self.runner


class FaultyEncoderRunner:
    """An encoder's runner that can be told to fail; `poison` are ids, as in `FaultyRunner`."""

    def __init__(self, runner: EncoderRunner) -> None:
        self._runner = runner
        self.provider = runner.provider
        self.warm_up = runner.warm_up
        self.poison: Collection[int] = ()
        self.broken = False
        self.resume = threading.Event()
        self.resume.set()
        self.paused = threading.Event()

    def encode(self, texts: Sequence[Sequence[int]]) -> Logits:
        if not self.resume.is_set():
            self.paused.set()
            assert self.resume.wait(30)
        if self.broken or {token for text in texts for token in text} & set(self.poison):
            raise RuntimeError("injected")
        return self._runner.encode(texts)

    def probe(self) -> None:
        self.encode([[0]])


@dataclass
class Encoding:
    """A running encoder engine."""

    engine: EncoderEngine
    registry: CollectorRegistry
    trace: Trace
    runner: FaultyEncoderRunner

    async def embed(self, *texts: Sequence[int], deadline: float | None = None) -> EmbedOutcome:
        """The outcome of one call."""
        outcome = await self.outcome(texts, deadline=deadline)
        assert isinstance(outcome, EmbedOutcome), outcome
        return outcome

    async def outcome(
        self, texts: Sequence[Sequence[int]], *, deadline: float | None = None
    ) -> EmbedOutcome | Failed:
        _, arrival = self.submit(texts, deadline=deadline)
        return await asyncio.wait_for(arrival, 30)

    def submit(
        self, texts: Sequence[Sequence[int]], *, deadline: float | None = None
    ) -> tuple[Ticket, asyncio.Future[EmbedOutcome | Failed]]:
        """Submits a call; its ticket, and a future of its outcome."""
        arrival: asyncio.Future[EmbedOutcome | Failed] = asyncio.get_running_loop().create_future()
        items = [EmbedItem(tuple(text)) for text in texts]
        return self.engine.submit(items, arrival.set_result, deadline), arrival

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Keeps the engine busy with a text of its own, so that whatever comes has to wait."""
        self.runner.paused.clear()
        self.runner.resume.clear()
        _, holding = self.submit([[5]])
        assert await asyncio.to_thread(self.runner.paused.wait, 30)
        try:
            yield
        finally:
            self.runner.resume.set()
        await asyncio.wait_for(holding, 30)

    async def embed_together(self, *calls: Sequence[Sequence[int]]) -> list[EmbedOutcome | Failed]:
        """Submits calls while the engine is held, and proves that they share a batch."""
        async with self.held():
            submitted = [self.submit(texts) for texts in calls]
        outcomes = [await asyncio.wait_for(arrival, 30) for _, arrival in submitted]
        shared = self.trace.of(Did.ENCODE)[-1].tickets
        assert set(shared) == {ticket for ticket, _ in submitted}
        assert len(shared) == sum(map(len, calls))
        return outcomes

    def metric(self, name: str, **labels: str) -> float:
        return metric(self.registry, name, **labels)


@asynccontextmanager
async def encoding(
    directory: Path,
    *,
    max_batch_tokens: int = 512,
    max_queue: int = 100,
    max_queue_tokens: int = 10_000,
    max_wait_seconds: float = 0.0,
    max_request_seconds: float = 60.0,
) -> AsyncIterator[Encoding]:
    """An encoder engine, started."""
    source = artefact(directory)
    limits = EncoderLimits(
        source.manifest.limits.max_input,
        max_batch_tokens,
        max_queue,
        max_queue_tokens,
        max_wait_seconds,
        max_request_seconds,
    )
    registry, trace = CollectorRegistry(), Trace()
    runner = FaultyEncoderRunner(EncoderRunner(source, limits))
    engine = EncoderEngine(
        source,
        limits,
        Metrics(registry, ["model"]).model("model"),
        asyncio.get_running_loop(),
        trace=trace,
        open_runner=lambda: runner,
    )
    engine.start()
    try:
        yield Encoding(engine, registry, trace, runner)
    finally:
        await asyncio.to_thread(engine.stop)


def vector(outcome: EmbedOutcome, index: int = 0) -> NDArray[np.float32]:
    """The vector of one item, which must have one."""
    result = outcome.results[index]
    assert result.vector is not None, result.error
    return np.asarray(result.vector)
