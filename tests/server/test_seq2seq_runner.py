"""An encoder-decoder's runner on real graphs: a row depends on nothing but itself, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from server.limits import DecoderLimits
from server.scheduler import Move
from server.seq2seq_runner import Seq2seqRunner
from tests.artefacts import encoder_decoder_artefact, relative_artefact
from tests.server.engines import artefact

SLOTS, CAPACITY, SOURCE_CAPACITY = 6, 32, 256
SOURCES = [
    [7 + (index * 31 + i) % 200 for i in range(length)]
    for index, length in enumerate((3, 60, 1, 240, 17, 120))
]
TARGET = [0, 9, 31, 8]  # any tokens


@pytest.fixture(params=[encoder_decoder_artefact, relative_artefact])
def runner(request: pytest.FixtureRequest) -> Seq2seqRunner:
    limits = DecoderLimits(
        SLOTS, CAPACITY, 512, 1, 1, 1.0, source_capacity=SOURCE_CAPACITY, source_places=20
    )
    runner = Seq2seqRunner(artefact(request.param()), limits)
    runner.warm_up()  # leaves its own content in the rows, as earlier requests do
    return runner


def alone(runner: Seq2seqRunner, source: list[int], row: int = 0) -> NDArray[np.float32]:
    """The logits after each token of the target, `[tokens, vocab]`."""
    runner.encode([source])
    runner.place(0, row)
    return follow(runner, row)


def follow(runner: Seq2seqRunner, row: int) -> NDArray[np.float32]:
    """The same of a row whose source is there."""
    steps = enumerate(TARGET)
    return np.stack([runner.decode_row(row, token, length)[0].copy() for length, token in steps])


def test_sources_encoded_and_decoded_together_equal_each_alone(runner: Seq2seqRunner) -> None:
    """PAD-06: a source of 3 tokens first, in the middle and last."""
    expected = [alone(runner, source) for source in SOURCES]
    assert all(np.ptp(logits) > 0.1 for logits in expected)
    for order in ([0, 1, 2, 5], [1, 0, 2, 5], [5, 2, 1, 0], [4, 0, 4, 0, 4, 0]):
        runner.encode([SOURCES[index] for index in order])
        for place, row in enumerate(reversed(range(len(order)))):
            runner.place(place, row)
        for length, token in enumerate(TARGET):
            together = runner.decode([token] * len(order), [length] * len(order))
            for row, index in enumerate(reversed(order)):
                assert (together[row] == expected[index][length]).all(), (order, row, length)


def test_rows_at_different_lengths_and_sources_decode_together(runner: Seq2seqRunner) -> None:
    expected = [alone(runner, source) for source in SOURCES]
    for row, source in enumerate(SOURCES):
        runner.encode([source])
        runner.place(0, row)
        for length in range(row % len(TARGET)):
            runner.decode_row(row, TARGET[length], length)
    lengths = [row % len(TARGET) for row in range(SLOTS)]
    together = runner.decode([TARGET[length] for length in lengths], lengths)
    for row, length in enumerate(lengths):
        assert (together[row] == expected[row][length]).all(), row


def test_what_an_earlier_source_left_behind_changes_nothing(runner: Seq2seqRunner) -> None:
    expected = alone(runner, SOURCES[0], row=2)
    alone(runner, SOURCES[3], row=2)
    assert (alone(runner, SOURCES[0], row=2) == expected).all()


def test_a_row_moves_with_its_source_and_a_fork_leaves_it(runner: Seq2seqRunner) -> None:
    first, second = SOURCES[1], SOURCES[4]
    expected = alone(runner, second)
    runner.encode([first, second])
    for place, row in ((0, 0), (1, 3), (1, 4)):
        runner.place(place, row)
    for row in (3, 4):
        for length, token in enumerate(TARGET[:-1]):
            runner.decode_row(row, token if row == 3 else 5, length)
    runner.move(Move(3, 0, len(TARGET) - 1, memory=True))
    assert (runner.decode_row(0, TARGET[-1], len(TARGET) - 1)[0] == expected[-1]).all()
    runner.place(0, 1)
    runner.move(Move(4, 1, len(TARGET) - 1))
    runner.move(Move(3, 4, len(TARGET) - 1))
    assert (runner.decode_row(4, TARGET[-1], len(TARGET) - 1)[0] == expected[-1]).all()
    other = runner.decode_row(1, TARGET[-1], len(TARGET) - 1)[0]
    assert (other != expected[-1]).any(), "its own source, and another's target"


def test_a_memory_that_was_kept_is_what_was_encoded_in_any_row(runner: Seq2seqRunner) -> None:
    expected = alone(runner, SOURCES[1], row=1)
    runner.keep_source(1, [2, 5, 0, 3])  # 60 tokens in places of 16
    alone(runner, SOURCES[3], row=1)
    alone(runner, SOURCES[3], row=5)
    runner.keep_source(5, [*range(6, 20), 4])
    runner.restore_source([2, 5, 0, 3], len(SOURCES[1]), 5)
    assert (follow(runner, 5) == expected).all()


def test_a_row_alone_computes_what_it_does_in_company(runner: Seq2seqRunner) -> None:
    alone(runner, SOURCES[0], row=0)
    alone(runner, SOURCES[1], row=1)
    company = runner.decode([9, 9], [4, 4]).copy()
    assert (runner.decode_row(1, 9, 4)[0] == company[1]).all()


def test_what_exceeds_a_row_or_a_batch_is_refused(runner: Seq2seqRunner) -> None:
    with pytest.raises(IndexError, match="33 positions exceed a row of 32"):
        runner.decode([1], [CAPACITY])
    with pytest.raises(IndexError, match="exceeds a buffer"):
        runner.encode([SOURCES[3]] * 3)
