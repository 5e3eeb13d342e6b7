"""Reused prefixes on a real graph: every logit is, bit for bit, what it is without reuse."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from server.decoder_runner import DecoderRunner
from server.limits import DecoderLimits
from server.metrics import Metrics
from server.prefix_store import PrefixStore
from server.request import GenerationRequest, Output, Sampling, Stopping
from tests.artefacts import decoder_artefact, learned_decoder_artefact
from tests.server.engines import artefact, metric

ROWS, CAPACITY, CHUNK = 3, 128, 16


class Prefilling:
    """A runner with a store of few places, so that chunks come and go."""

    def __init__(self, directory: Path, places: int) -> None:
        limits = DecoderLimits(ROWS, CAPACITY, CHUNK, 1, 1, 1.0, cached_chunks=places)
        self.runner = DecoderRunner(artefact(directory), limits)
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, ["model"]).model("model")
        self.store = PrefixStore(self.runner, limits, metrics)

    def logits(
        self, request: GenerationRequest, row: int, *, reuse: bool
    ) -> tuple[int, list[NDArray[np.float32]]]:
        """The tokens reused; the logits behind the prompt and of two steps more."""
        prompt = request.prompt
        reused = self.store.restore(request, row) if reuse else 0
        for start in range(reused, len(prompt), CHUNK):
            end = min(start + CHUNK, len(prompt))
            computed = self.runner.prefill(row, prompt[start:end], start, logits=1)
            if reuse:
                self.store.keep(request, row, start, end)
        logits = [computed[0].copy()]
        for step in range(2):
            tokens, lengths = [3 + step] * (row + 1), [0] * row + [len(prompt) + step]
            logits.append(self.runner.decode(tokens, lengths)[row].copy())
        return reused, logits


def overlapping_prompts(draw: random.Random) -> Iterator[list[int]]:
    """Prompts that begin like some earlier one, up to anywhere."""
    earlier: list[list[int]] = [[]]
    while True:
        trunk = draw.choice(earlier)
        prompt = trunk[: draw.randint(0, len(trunk))]
        prompt += [draw.randint(4, 250) for _ in range(draw.randint(1, 60))]
        earlier.append(prompt[: CAPACITY - 4])
        yield earlier[-1]


def wanted(prompt: list[int], partition: str = "", *, scored: bool = False) -> GenerationRequest:
    output = Output(prompt_logprobs=scored)
    return GenerationRequest(tuple(prompt), Sampling(), Stopping(4), output, partition=partition)


@pytest.mark.parametrize("build", [decoder_artefact, learned_decoder_artefact])
def test_logits_over_random_overlaps_are_bitwise_the_same(build: Callable[[], Path]) -> None:
    draw = random.Random(5)
    prefilling = Prefilling(build(), places=9)
    prompts = overlapping_prompts(draw)
    reuses = 0
    for _ in range(60):
        request = wanted(next(prompts), draw.choice(["", "one"]))
        reused, cached = prefilling.logits(request, draw.randrange(ROWS), reuse=True)
        _, computed = prefilling.logits(request, draw.randrange(ROWS), reuse=False)
        for one, other in zip(cached, computed, strict=True):
            assert (one == other).all()
        assert reused < len(request.prompt)
        reuses += reused > 0
    assert reuses > 10
    assert metric(prefilling.registry, "prefix_cache_hits_total") == reuses


def test_what_is_reused_is_counted_and_kept_within_its_places() -> None:
    prefilling = Prefilling(decoder_artefact(), places=3)
    prompt = [5 + i for i in range(3 * CHUNK)]
    for length, reused in ((40, 0), (48, 32), (48, 32), (32, 16), (33, 32), (CHUNK, 0)):
        assert prefilling.logits(wanted(prompt[:length]), 0, reuse=True)[0] == reused
    assert prefilling.logits(wanted(prompt, "another"), 0, reuse=True)[0] == 0
    registry = prefilling.registry
    assert metric(registry, "prefix_cache_lookups_total") == 6, "not of a prompt of one chunk"
    assert metric(registry, "prefix_cache_hits_total") == 4
    assert metric(registry, "prefix_cache_reused_tokens_total") == 32 + 32 + 16 + 32
    assert metric(registry, "prefix_cache_bytes") == 3 * prefilling.runner.chunk_bytes


def test_a_prompt_that_is_scored_is_computed_anew_and_kept_for_others() -> None:
    prefilling = Prefilling(decoder_artefact(), places=3)
    prompt = [5 + i for i in range(40)]
    for scored, reused in ((True, 0), (True, 0), (False, 32)):
        request = wanted(prompt, scored=scored)
        assert prefilling.logits(request, 0, reuse=True)[0] == reused
    assert metric(prefilling.registry, "prefix_cache_lookups_total") == 1


def test_without_places_nothing_is_looked_up() -> None:
    prefilling = Prefilling(decoder_artefact(), places=0)
    for _ in range(2):
        assert prefilling.logits(wanted([7] * 60), 0, reuse=True)[0] == 0
    assert metric(prefilling.registry, "prefix_cache_lookups_total") == 0
