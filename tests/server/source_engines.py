"""Engines of encoder-decoders: on tiny artefacts, and on a script that shows every wrong row."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from server.artefact import Artefact
from server.limits import SOURCE_PLACE, DecoderLimits
from server.request import Beam, GenerationRequest, Output, Sampling, Stopping
from server.runner import Logits
from server.scheduler import Move
from server.seq2seq_runner import Seq2seqRunner
from server.tokenizer import Tokenizer
from tests.checkpoints import byte_tokenizer
from tests.server.engines import Decoding, Mailbox, artefact, started
from tests.server.manifests import encoder_decoder_manifest

START = 0  # what every target begins with
VOCABULARY = 100


def translation(
    source: Sequence[int],
    max_new_tokens: int = 8,
    *,
    prefix: Sequence[int] = (),
    seed: int | None = None,
    n: int = 1,
    beam: Beam | None = None,
    output: Output = Output(),  # noqa: B008 - frozen
    eos_ids: tuple[int, ...] = (),
    deadline: float | None = None,
    partition: str = "",
) -> GenerationRequest:
    """Greedy, or sampled at temperature 1 with a seed; its length ends it, or `eos_ids`."""
    return GenerationRequest(
        (START, *prefix),
        Sampling() if seed is None else Sampling(temperature=1.0, seed=seed),
        Stopping(max_new_tokens, eos_ids=eos_ids),
        output,
        n=n,
        deadline=deadline,
        beam=beam,
        partition=partition,
        source=tuple(source),
    )


def said(source: Sequence[int], target: Sequence[int]) -> Logits:
    """What the scripted model says after a target: numbers that any other row has otherwise."""
    entropy = [len(source), *source, *target]
    numbers = np.random.Generator(np.random.PCG64(entropy))
    return numbers.standard_normal(VOCABULARY, np.float32)


def spoken(source: Sequence[int], count: int, prefix: Sequence[int] = ()) -> list[int]:
    """The likeliest `count` tokens."""
    target = [START, *prefix]
    for _ in range(count):
        target.append(int(said(source, target).argmax()))
    return target[1 + len(prefix) :]


class Pausable:
    """A runner that can be held at its next decode step.

    Attributes:
        resume: lets it go on, once it is set.
        paused: is set while it is held.
    """

    def __init__(self) -> None:
        self.resume = threading.Event()
        self.resume.set()
        self.paused = threading.Event()

    def pause(self) -> None:
        """Holds the engine at its next decode step until `resume` is set."""
        self.paused.clear()
        self.resume.clear()

    def wait(self) -> None:
        """Waits where the engine is to be held."""
        if not self.resume.is_set():
            self.paused.set()
            assert self.resume.wait(30)


class PausableRunner(Seq2seqRunner, Pausable):
    """The real runner."""

    def __init__(self, artefact: Artefact, limits: DecoderLimits) -> None:
        Pausable.__init__(self)
        Seq2seqRunner.__init__(self, artefact, limits)

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Logits:
        self.wait()
        return super().decode(tokens, lengths)


class ScriptedRunner(Pausable):
    """A runner whose rows hold tokens instead of keys and values; it can be told to fail.

    Attributes:
        batches: the sources of each batch that was encoded.
        moves: those that were made.
        poison: tokens; a run that is given one of them raises.
        spoil: tokens; the logits of a row that is given one of them are not finite.
        failing: names of methods that raise instead of copying.
        copies: how often each method that copies has been called.
        broken: every run raises, the probe too.
        blind: every run raises, but not the probe.
    """

    provider = "script"
    place_bytes = 100

    def __init__(self, limits: DecoderLimits) -> None:
        super().__init__()
        self._limits = limits
        self._targets = [[-1] * limits.capacity for _ in range(limits.slots)]
        self._memories: list[Sequence[int]] = [()] * limits.slots
        self._encoded: Sequence[Sequence[int]] = ()
        self._kept: dict[int, Sequence[int]] = {}
        self.batches: list[Sequence[Sequence[int]]] = []
        self.moves: list[Move] = []
        self.poison: Collection[int] = ()
        self.spoil: Collection[int] = ()
        self.failing: Collection[str] = ()
        self.copies: Counter[str] = Counter()
        self.broken = False
        self.blind = False

    def encode(self, sources: Sequence[Sequence[int]]) -> None:
        longest = max(map(len, sources))
        assert longest * len(sources) <= self._limits.encoded_at_once
        self._fail({token for source in sources for token in source})
        self._encoded = [tuple(source) for source in sources]
        self.batches.append(self._encoded)

    def place(self, index: int, row: int) -> None:
        self._copy("place")
        self._memories[row] = self._encoded[index]

    def keep_source(self, row: int, places: Sequence[int]) -> None:
        self._copy("keep_source")
        source = self._memories[row]
        starts = range(0, len(source), SOURCE_PLACE)
        self._kept |= {
            place: source[start : start + SOURCE_PLACE]
            for place, start in zip(places, starts, strict=True)
        }

    def restore_source(self, places: Sequence[int], length: int, row: int) -> None:
        self._copy("restore_source")
        source = tuple(token for place in places for token in self._kept[place])
        assert len(source) == length
        self._memories[row] = source

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Logits:
        self.wait()
        self._fail(tokens)
        rows = zip(range(len(tokens)), tokens, lengths, strict=True)
        return np.stack([self._decode(*row) for row in rows])

    def decode_row(self, row: int, token: int, length: int) -> Logits:
        self._fail([token])
        return self._decode(row, token, length)[np.newaxis]

    def move(self, move: Move) -> None:
        self.moves.append(move)
        moved = self._targets[move.source][move.start : move.length]
        self._targets[move.destination][move.start : move.length] = moved
        if move.memory:
            self._memories[move.destination] = self._memories[move.source]

    def warm_up(self) -> None:
        """There is nothing to warm."""

    def probe(self, row: int) -> None:
        if self.broken or "probe" in self.failing:
            raise RuntimeError("injected")
        self._memories[row] = ()

    def _decode(self, row: int, token: int, length: int) -> Logits:
        target = self._targets[row]
        target[length] = token
        logits = said(self._memories[row], target[: length + 1])
        if token in self.spoil:
            logits[3] = np.nan
        return logits

    def _copy(self, name: str) -> None:
        self.copies[name] += 1
        if name in self.failing:
            raise RuntimeError("injected")

    def _fail(self, tokens: Collection[int]) -> None:
        if self.broken or self.blind or set(tokens) & set(self.poison):
            raise RuntimeError("injected")


class Translating(Decoding):
    """A running engine that can be held."""

    runner: Pausable

    async def hold(self) -> None:
        """Waits until the engine is held at a decode step; it has to have something to do."""
        self.runner.pause()
        assert await asyncio.to_thread(self.runner.paused.wait, 30)

    async def together(self, *wanted: GenerationRequest) -> list[Mailbox]:
        """Submits requests while the engine is held with one of its own: they meet in the queue."""
        self.runner.pause()
        holding = self.submit(translation([1], 2))
        assert await asyncio.to_thread(self.runner.paused.wait, 30)
        mailboxes = [self.submit(each) for each in wanted]
        self.runner.resume.set()
        await holding.end()
        return mailboxes


class Scripted(Translating):
    """A running engine on the script."""

    runner: ScriptedRunner


@asynccontextmanager
async def scripted(
    *,
    slots: int = 4,
    capacity: int = 64,
    source_capacity: int = 32,
    prefill_chunk: int = 16,
    source_places: int = 0,
    max_queue_tokens: int = 10_000,
    max_request_seconds: float = 60.0,
) -> AsyncIterator[Scripted]:
    """An engine on the script, started."""
    limits = DecoderLimits(
        slots,
        capacity,
        prefill_chunk,
        100,
        max_queue_tokens,
        max_request_seconds,
        source_capacity=source_capacity,
        source_places=source_places,
    )
    runner = ScriptedRunner(limits)
    source = Artefact(Path("script"), encoder_decoder_manifest(), {})
    tokenizer = Tokenizer(byte_tokenizer().to_str().encode())
    async with started(source, tokenizer, limits, lambda: runner) as running:
        engine = Scripted(running.engine, running.registry, running.trace)
        engine.runner = runner
        yield engine


@asynccontextmanager
async def translating(
    directory: Path,
    *,
    slots: int = 5,
    capacity: int = 64,
    source_capacity: int = 256,
    prefill_chunk: int = 64,
    source_places: int = 0,
) -> AsyncIterator[Translating]:
    """An engine on a tiny artefact, started."""
    source = artefact(directory)
    limits = DecoderLimits(
        slots,
        capacity,
        prefill_chunk,
        100,
        10_000,
        60.0,
        source_capacity=source_capacity,
        source_places=source_places,
    )
    tokenizer = Tokenizer(source.tokenizer, source.manifest.vocabulary_size)
    runner = PausableRunner(source, limits)
    async with started(source, tokenizer, limits, lambda: runner) as running:
        engine = Translating(running.engine, running.registry, running.trace)
        engine.runner = runner
        yield engine
