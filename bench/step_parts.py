"""Where the time of a decode step goes: the engine runs as it is, with a stopwatch in it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import onnxruntime

from bench.results import StepParts
from bench.service import engine_service
from bench.workload import RealText, Request
from server import decoder_worker
from server.completion import Completion
from server.decoder_runner import DecoderRunner
from server.decoder_worker import DecoderWorker
from server.outbox import Outbox
from server.request import Sampling

RUN = "ONNX Runtime"
SAMPLER = "sampler"
DETOKENISER = "detokeniser"
DELIVERY = "delivery"
OTHER = "other Python"
PARTS = (RUN, SAMPLER, DETOKENISER, DELIVERY, OTHER)
_WHOLE = "iteration"
_PREFILL = "prefill"
_PROMPT_TOKENS = 64  # one chunk: one iteration of the engine prefills it
TOP_P = "batch 8, top_p 0.9"


@dataclass(frozen=True)
class Situation:
    """Equal requests that run together."""

    label: str
    batch: int
    sampling: Sampling | None = None  # greedy


SITUATIONS = (
    Situation("batch 1", 1),
    Situation("batch 8", 8),
    Situation(TOP_P, 8, Sampling(temperature=0.8, top_p=0.9)),
    Situation("batch 16", 16),
)


@dataclass
class Iteration:
    """One turn of the engine's thread: seconds and calls by part."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: Counter[str] = field(default_factory=Counter)


class Stopwatch:
    """Times functions, for one iteration of the engine after the other."""

    def __init__(self) -> None:
        self.iterations: list[Iteration] = []

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time added to a part."""

        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                if self.iterations:  # else it is a warm-up
                    self.iterations[-1].seconds[part] += time.perf_counter() - began
                    self.iterations[-1].calls[part] += 1

        return call

    def iteration(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, each call of which is an iteration."""
        whole = self.timed(_WHOLE, function)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.iterations.append(Iteration())
            return whole(*args, **kwargs)

        return call


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Builds a stopwatch into every engine; takes it out at the end."""
    watch = Stopwatch()
    parts = (
        (onnxruntime.InferenceSession, "run_with_iobinding", RUN),
        (DecoderRunner, "prefill", _PREFILL),
        (decoder_worker, "sample", SAMPLER),
        (Completion, "accept", DETOKENISER),
        (Outbox, "flush", DELIVERY),
    )
    with ExitStack() as patches:
        for owner, name, part in parts:
            timed = watch.timed(part, getattr(owner, name))
            patches.enter_context(patch.object(owner, name, timed))
        iterate = watch.iteration(DecoderWorker.iterate)
        patches.enter_context(patch.object(DecoderWorker, "iterate", iterate))
        yield watch


async def step_parts(artefact: Path, situation: Situation, text: RealText, steps: int) -> StepParts:
    """The medians of the steps in which all requests decode, at least so many."""
    new_tokens = steps + situation.batch  # the first one decodes while the others are prefilled
    requests = [Request(text.prompt(_PROMPT_TOKENS), new_tokens) for _ in range(situation.batch)]
    with stopwatch() as watch:
        async with engine_service(artefact, situation.sampling) as call:
            await asyncio.gather(*map(call, requests))
    full = [
        iteration
        for iteration in watch.iterations
        if iteration.calls[DETOKENISER] == situation.batch and not iteration.calls[_PREFILL]
    ]
    return StepParts(situation.label, typical(full))


def typical(iterations: Sequence[Iteration]) -> dict[str, float]:
    """The median of each part in milliseconds; what no stopwatch saw is `OTHER`."""
    timed = [part for part in PARTS if part != OTHER]
    for iteration in iterations:
        seen = sum(iteration.seconds[part] for part in timed)
        iteration.seconds[OTHER] = iteration.seconds[_WHOLE] - seen
    return {part: 1e3 * median(each.seconds[part] for each in iterations) for part in PARTS}
