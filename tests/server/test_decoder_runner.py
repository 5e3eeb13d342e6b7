"""The runner on real graphs: what a row computes depends on nothing but the row. Bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from server.decoder_runner import DecoderRunner
from server.limits import DecoderLimits
from server.scheduler import Move
from tests.artefacts import decoder_artefact, learned_decoder_artefact
from tests.server.engines import artefact

SLOTS, CAPACITY, CHUNK = 6, 128, 16
PROMPTS = [
    [7 + (row * 31 + i) % 200 for i in range(length)]
    for row, length in enumerate((1, 4, 16, 17, 60, 90))
]


@pytest.fixture(params=[decoder_artefact, learned_decoder_artefact])
def runner(request: pytest.FixtureRequest) -> DecoderRunner:
    limits = DecoderLimits(SLOTS, CAPACITY, CHUNK, 1, 1, 1.0, cached_chunks=8)
    runner = DecoderRunner(artefact(request.param()), limits)
    runner.warm_up()  # leaves its own content in the rows, as earlier requests do
    return runner


def prefill(runner: DecoderRunner, row: int, prompt: list[int]) -> NDArray[np.float32]:
    """The logits of the last token of a prompt, `[vocab]`."""
    for start in range(0, len(prompt), CHUNK):
        chunk = prompt[start : start + CHUNK]
        logits = runner.prefill(row, chunk, start, logits=int(start + CHUNK >= len(prompt)))
    last: NDArray[np.float32] = logits[0].copy()
    return last


def test_a_chunk_without_logits_computes_none(runner: DecoderRunner) -> None:
    assert runner.prefill(0, PROMPTS[2], 0, logits=0).shape[0] == 0


def test_a_prompt_gives_the_same_logits_in_every_row(runner: DecoderRunner) -> None:
    prompt = PROMPTS[4]
    expected = prefill(runner, 0, prompt)
    assert np.ptp(expected) > 0.1
    for row in range(1, SLOTS):
        assert (prefill(runner, row, prompt) == expected).all()


def test_rows_decoded_together_equal_each_alone(runner: DecoderRunner) -> None:
    alone = []
    for prompt in PROMPTS:
        prefill(runner, 0, prompt)
        steps = [runner.decode([5 + step], [len(prompt) + step])[0].copy() for step in range(3)]
        alone.append(steps)
    for row, prompt in enumerate(PROMPTS):
        prefill(runner, row, prompt)
    for step in range(3):
        lengths = [len(prompt) + step for prompt in PROMPTS]
        together = runner.decode([5 + step] * SLOTS, lengths)
        for row in range(SLOTS):
            assert (together[row] == alone[row][step]).all(), f"row {row}, step {step}"


def test_a_moved_row_goes_on_as_it_would_have(runner: DecoderRunner) -> None:
    prompt = PROMPTS[4]
    prefill(runner, 3, prompt)
    prefill(runner, 0, PROMPTS[5])
    runner.move(Move(3, 1, len(prompt)))
    prefill(runner, 3, PROMPTS[5])
    runner.move(Move(3, 0, len(PROMPTS[5])))
    prefill(runner, 2, prompt)
    logits = runner.decode([9, 9, 9], [len(PROMPTS[5]), len(prompt), len(prompt)])
    assert (logits[1] == logits[2]).all()
    assert (logits[0] != logits[1]).any()


def test_a_token_computed_as_a_chunk_of_one_equals_its_decode_step(runner: DecoderRunner) -> None:
    prompt = PROMPTS[3]
    prefill(runner, 0, prompt)
    prefill(runner, 1, prompt)
    decoded = runner.decode([9, 9], [len(prompt)] * 2)[1].copy()
    assert (runner.decode_row(1, 9, len(prompt))[0] == decoded).all()


def test_logits_lie_in_the_same_memory_every_step(runner: DecoderRunner) -> None:
    first = runner.decode([1, 2], [0, 0])
    second = runner.decode([1, 2], [1, 1])
    assert first.ctypes.data == second.ctypes.data


def test_positions_beyond_the_row_are_refused_before_anything_is_written(
    runner: DecoderRunner,
) -> None:
    with pytest.raises(IndexError, match="129 positions exceed a row of 128"):
        runner.decode([1], [CAPACITY])
    with pytest.raises(IndexError, match="exceeds a buffer"):
        runner.prefill(SLOTS, [1], 0, logits=1)


def test_logits_of_all_tokens_of_a_chunk_end_with_those_of_the_last(runner: DecoderRunner) -> None:
    """One row and many are multiplied by different kernels: equal, but not bit for bit."""
    chunk = PROMPTS[2]
    last = runner.prefill(0, chunk, 0, logits=1).copy()
    every = runner.prefill(1, chunk, 0, logits=len(chunk)).copy()
    assert every.shape == (len(chunk), last.shape[1])
    np.testing.assert_allclose(every[-1:], last, atol=1e-4)
    for position in range(1, len(chunk)):
        alone = runner.prefill(2, chunk[:position], 0, logits=1)
        np.testing.assert_allclose(every[position - 1], alone[0], atol=1e-4)


def test_what_is_written_does_not_depend_on_the_logits_that_are_asked_for(
    runner: DecoderRunner,
) -> None:
    chunk = PROMPTS[2]
    for row, logits in enumerate((0, 1, len(chunk))):
        runner.prefill(row, chunk, 0, logits=logits)
    none, last, every = runner.decode([9, 9, 9], [len(chunk)] * 3)
    assert (none == last).all()
    assert (none == every).all()


def test_a_kept_chunk_is_what_was_computed_in_any_row(runner: DecoderRunner) -> None:
    prompt = PROMPTS[5]
    expected = prefill(runner, 0, prompt)
    whole = (len(prompt) - 1) // CHUNK
    for index in range(whole):
        runner.keep_chunk(0, index * CHUNK, place=index)
    prefill(runner, 0, PROMPTS[4])
    for index in range(whole):
        runner.restore_chunk(index, 3, index * CHUNK)
    rest = runner.prefill(3, prompt[whole * CHUNK :], whole * CHUNK, logits=1)[0].copy()
    assert (rest == expected).all()


def test_a_move_of_a_span_leaves_the_rest_of_the_row(runner: DecoderRunner) -> None:
    """Two prompts that differ at the end: moving the end makes one the other."""
    first, second = PROMPTS[4], [*PROMPTS[4][:40], *PROMPTS[5][40:60]]
    prefill(runner, 0, first)
    prefill(runner, 1, second)
    prefill(runner, 2, second)
    runner.move(Move(2, 0, 60, start=40))
    moved, same, _ = runner.decode([9, 9, 9], [60] * 3)
    assert (moved == same).all()
