"""What must hold of generation on a GPU. A row is a slot of the cache, a step one decode."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import server.session
from export.session_settings import SessionSettings, session_settings
from server.artefact import load_artefact
from server.cuda import free_memory
from server.decoder_runner import DecoderRunner
from server.errors import OverLimit
from server.limits import DecoderLimits
from server.scheduler import Move
from server.session import step_error
from tests.gpu.experiment import Experiment, Findings, Rows, Setting, compare_logits

_CAPACITY, _CHUNK, _SLOTS = 512, 512, 8
_CANARY = 77.0  # exact in fp16
_WARM_STEPS, _TIMED_STEPS = 10, 50
_LEAK_BYTES = 64 << 20


def generation(setting: Setting, findings: Findings) -> None:
    """A short and a long prompt, then the tokens that fp32 chose, one by one."""
    for name in ("short", "long"):
        tokens, wanted = _reference(setting, name)
        found = _follow(_runner(setting), tokens, len(tokens) - len(wanted) + 1)
        compare_logits(findings, f"{name} prompt", found, wanted)


def every_length(setting: Setting, findings: Findings) -> None:
    """GPU-02: total lengths 1 to 65, one by one."""
    tokens, wanted = _reference(setting, "step by step")
    compare_logits(findings, "lengths 1 to 65", _follow(_runner(setting), tokens, 1), wanted)


def rows(setting: Setting, findings: Findings) -> None:
    """Single rows at an offset, a prefix of rows: nothing else of the cache is touched."""
    runner = _runner(setting)
    tokens, _ = _reference(setting, "long")
    for length in (40, 301):
        prompt = tokens[:length].tolist()
        _fill(runner)
        runner.prefill(3, prompt, 0, logits=0)
        others = [row for row in range(_SLOTS) if row != 3]
        untouched = all(
            (slab[others] == _CANARY).all() and (slab[3, :, length:] == _CANARY).all()
            for slab in _slabs(runner)
        )
        findings.criteria[f"a prompt of {length} writes its own row alone"] = untouched
        runner.decode([1] * 5, [length] * 5)
        untouched = all(
            (slab[5:] == _CANARY).all() and (slab[:5, :, length + 1 :] == _CANARY).all()
            for slab in _slabs(runner)
        )
        findings.criteria[f"a step of 5 rows at {length} writes a position of each"] = untouched


def ragged_rows(setting: Setting, findings: Findings) -> None:
    """Rows of different lengths, together and each alone; the same step twice."""
    runner = _runner(setting)
    tokens, _ = _reference(setting, "long")
    lengths = [3 + 37 * row for row in range(_SLOTS)]
    for row, length in enumerate(lengths):
        runner.prefill(row, tokens[:length].tolist(), 0, logits=0)
    steps = [int(tokens[length]) for length in lengths]
    alone = [
        runner.prefill(row, [step], length, logits=1)[0].copy()
        for row, (step, length) in enumerate(zip(steps, lengths, strict=True))
    ]
    for count in range(1, _SLOTS + 1):
        together = runner.decode(steps[:count], lengths[:count]).copy()
        compare_logits(findings, f"{count} rows", together, np.stack(alone[:count]))
        again = runner.decode(steps[:count], lengths[:count])
        findings.criteria[f"{count} rows twice: bitwise equal"] = bool((again == together).all())


def chunked_prefill(setting: Setting, findings: Findings) -> None:
    """A prompt in chunks against the same prompt in one go."""
    runner = _runner(setting)
    tokens, wanted = _reference(setting, "long")
    prompt = tokens[: len(tokens) - len(wanted) + 1].tolist()
    whole = runner.prefill(0, prompt, 0, logits=1).copy()
    for size in (16, 64):
        for start in range(0, len(prompt), size):
            chunk = prompt[start : start + size]
            last = runner.prefill(1, chunk, start, logits=1)
        compare_logits(findings, f"chunks of {size}", last, whole)


def moved_row(setting: Setting, findings: Findings) -> None:
    """A row that moved goes on as it would have, bit by bit, and the others stay as they are."""
    runner = _runner(setting)
    tokens, _ = _reference(setting, "long")
    length = 200
    _fill(runner)
    runner.prefill(7, tokens[:length].tolist(), 0, logits=0)
    runner.move(Move(7, 1, length))
    others = [row for row in range(_SLOTS) if row not in (1, 7)]
    findings.criteria["the other rows are untouched"] = all(
        (slab[others] == _CANARY).all() and (slab[1, :, length:] == _CANARY).all()
        for slab in _slabs(runner)
    )
    step = int(tokens[length])
    here = runner.prefill(7, [step], length, logits=1).copy()
    there = runner.prefill(1, [step], length, logits=1)
    findings.criteria["the moved row goes on bitwise equal"] = bool((here == there).all())


def steady_memory(setting: Setting, findings: Findings) -> None:
    """GPU-03: steps of 16 rows, then 200 of 7, take no more memory than the first."""
    runner = _runner(setting, slots=16)
    runner.warm_up()
    runner.decode([1] * 16, [64] * 16)
    before = free_memory(0)
    for step in range(200):
        logits = runner.decode([1] * 7, [64 + step % 128] * 7)
    taken = before - free_memory(0)
    findings.measured["bytes that 200 steps took"] = taken
    findings.criteria |= {
        f"memory grows by less than {_LEAK_BYTES} bytes": taken < _LEAK_BYTES,
        "finite": bool(np.isfinite(logits).all()),
    }


def every_token(setting: Setting, findings: Findings) -> None:
    """GPU-05: each token of the vocabulary as a prompt; all logits are finite."""
    slots = 64
    runner = _runner(setting, slots=slots)
    vocabulary_size = load_artefact(setting.decoder).manifest.vocabulary_size
    wild = 0
    for start in range(0, vocabulary_size, slots):
        tokens = range(start, min(start + slots, vocabulary_size))
        logits = runner.decode(tokens, [0] * len(tokens))
        wild += int((~np.isfinite(logits)).any(axis=1).sum())
    findings.measured |= {"tokens": vocabulary_size, "not finite": wild}
    findings.criteria["finite for every token"] = wild == 0


def out_of_memory(setting: Setting, findings: Findings) -> None:
    """A run that finds no memory says so, and the next one is right."""
    tokens, wanted = _reference(setting, "short")
    prompt = tokens[: len(tokens) - len(wanted) + 1].tolist()
    artefact = load_artefact(setting.decoder)
    weights = sum(artefact.manifest.files[name].size for name in artefact.files)
    with _memory_limit(weights + (96 << 20)):
        runner = _runner(setting, slots=1, capacity=8192, chunk=8192)
    try:
        runner.prefill(0, [1] * 8192, 0, logits=8192)
        findings.measured["error"] = "none: the limit was too large"
        findings.criteria["a run that needs too much fails"] = False
    except Exception as error:
        findings.measured["error"] = str(error)[:300]
        findings.criteria["it is told as a lack of memory"] = isinstance(
            step_error(error), OverLimit
        )
    found = runner.prefill(0, prompt, 0, logits=1)
    compare_logits(findings, "afterwards", found, wanted[:1])


def step_times(setting: Setting, findings: Findings) -> None:
    """Steps at several batch sizes; larger batches must not give fewer tokens a second."""
    rates = []
    for count in (1, 8, 32, 64):
        runner = _runner(setting, slots=count)
        runner.warm_up()
        for _ in range(_WARM_STEPS):
            runner.decode([1] * count, [128] * count)
        times = []
        for _ in range(_TIMED_STEPS):
            began = time.perf_counter()
            runner.decode([1] * count, [128] * count)
            times.append(time.perf_counter() - began)
        findings.measured[f"{count} rows: median ms"] = float(np.median(times)) * 1e3
        findings.measured[f"{count} rows: 99th percentile ms"] = (
            float(np.quantile(times, 0.99)) * 1e3
        )
        rates.append(count / float(np.median(times)))
    findings.measured["tokens a second"] = [round(rate) for rate in rates]
    findings.criteria["throughput grows with the batch"] = rates == sorted(rates)


DECODER_EXPERIMENTS: dict[str, Experiment] = {
    "generation": generation,
    "every length": every_length,
    "rows": rows,
    "ragged rows": ragged_rows,
    "chunked prefill": chunked_prefill,
    "moved row": moved_row,
    "steady memory": steady_memory,
    "every token": every_token,
    "out of memory": out_of_memory,
    "step times": step_times,
}


def _runner(
    setting: Setting, slots: int = _SLOTS, capacity: int = _CAPACITY, chunk: int = _CHUNK
) -> DecoderRunner:
    artefact = load_artefact(setting.decoder)
    capacity = min(capacity, artefact.manifest.limits.max_positions)
    return DecoderRunner(artefact, DecoderLimits(slots, capacity, chunk, 1, 1, 600.0))


def _reference(setting: Setting, name: str) -> tuple[NDArray[np.int64], Rows]:
    """The tokens of a text `[length]`, and the logits of its last tokens `[n, vocab]` in fp32."""
    return setting.references[f"{name}.tokens"], setting.references[f"{name}.logits"]


def _follow(runner: DecoderRunner, tokens: NDArray[np.int64], prompt: int) -> Rows:
    """The logits of the last token of the prompt and of each that follows, whatever they say."""
    first = runner.prefill(0, tokens[:prompt].tolist(), 0, logits=1)[0].copy()
    pasts = range(prompt, len(tokens))
    return np.stack(
        [first, *(runner.decode([int(tokens[past])], [past])[0].copy() for past in pasts)]
    )


def _fill(runner: DecoderRunner) -> None:
    """Writes a number that no model gives to every position of the cache."""
    for slab in _buffers(runner):
        slab._memory.update_inplace(np.full(slab.shape, _CANARY, slab.dtype))


def _slabs(runner: DecoderRunner) -> Iterator[NDArray[Any]]:
    """What the cache holds, `[slots, G, C, D]` of each layer and half."""
    for slab in _buffers(runner):
        yield slab._memory.numpy()


def _buffers(runner: DecoderRunner) -> Sequence[Any]:
    return list(runner._slots._slabs.values())


@contextmanager
def _memory_limit(size: int) -> Iterator[None]:
    """Sessions that are opened meanwhile may take so many bytes of the device."""

    def limited(*arguments: Any) -> SessionSettings:
        settings = session_settings(*arguments)
        options = settings.provider_options | {"gpu_mem_limit": str(size)}
        return replace(settings, provider_options=options)

    with patch.object(server.session, "session_settings", limited):
        yield
