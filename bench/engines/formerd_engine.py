"""formerd's own runner: the graphs, the cache in place and the sampler, without anything around."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.engines.engine import Generated, Ids
from server.artefact import load_artefact
from server.decoder_runner import DecoderRunner
from server.limits import bytes_per_position, decoder_limits
from server.request import GenerationRequest, Sampling, Stopping
from server.sampler import SamplingRow, sample


class FormerdEngine:
    """An artefact of a decoder."""

    def __init__(self, model: Path, threads: int, slots: int = 16, length: int = 1280) -> None:
        """`slots` prompts of together `length` positions each are the most of one call."""
        artefact = load_artefact(model)
        manifest = artefact.manifest
        self._vocabulary_size = manifest.vocabulary_size
        self._limits = decoder_limits(
            manifest, slots * length * bytes_per_position(manifest), slots=slots
        )
        self._runner = DecoderRunner(artefact, self._limits, threads=threads)
        self._runner.warm_up()

    def generate(self, prompts: Sequence[Ids], new_tokens: int) -> Generated:
        began = time.perf_counter()
        rows = [self._sampling_row(prompt, new_tokens) for prompt in prompts]
        first = [self._prefill(row, prompt) for row, prompt in enumerate(prompts)]
        last = [choice.token_id for choice in sample(np.stack(first), rows)]
        ids, seconds = [last], [time.perf_counter() - began]
        for step in range(new_tokens - 1):
            logits = self._runner.decode(last, [len(prompt) + step for prompt in prompts])
            last = [choice.token_id for choice in sample(logits, rows)]
            ids.append(last)
            seconds.append(time.perf_counter() - began)
        return Generated([list(row) for row in zip(*ids, strict=True)], seconds)

    def _prefill(self, row: int, prompt: Ids) -> NDArray[np.float32]:
        """The logits after a prompt, `[vocab]`."""
        chunk = self._limits.prefill_chunk
        for start in range(0, len(prompt), chunk):
            ids = prompt[start : start + chunk]
            last = start + chunk >= len(prompt)
            logits = self._runner.prefill(row, ids, start, logits=last)
        after: NDArray[np.float32] = logits[0].copy()  # the next run overwrites them
        return after

    def _sampling_row(self, prompt: Ids, new_tokens: int) -> SamplingRow:
        request = GenerationRequest(tuple(prompt), Sampling(), Stopping(new_tokens))
        return SamplingRow(request, 0, self._vocabulary_size, new_tokens)
