"""What is asked of the systems, and that wrong answers are not timed."""

from __future__ import annotations

from collections.abc import Sequence

import click
import pytest

from bench.random_marian import END_ID, PAD_ID
from bench.seq2seq import figure, measure, random_requests
from bench.translation import Translate
from bench.workload import Request


def saying(token: int, short_by: int = 0, *, repeating: bool = False) -> Translate:
    """A system that says a token as often as it is asked to, or less often; it begins with one of
    the source's own, unless it is `repeating` itself.
    """

    def translate(requests: Sequence[Request]) -> list[list[int]]:
        first = [token if repeating else request.prompt[0] for request in requests]
        return [
            [begin, *[token] * (request.new_tokens - short_by - 1)]
            for begin, request in zip(first, requests, strict=True)
        ]

    return translate


def test_sources_and_targets_have_every_length() -> None:
    requests = random_requests(2000)
    assert {len(request.prompt) for request in requests} == set(range(10, 101))
    assert {request.new_tokens for request in requests} == set(range(10, 101))
    for request in requests:
        assert request.prompt[-1] == END_ID
        assert not {END_ID, PAD_ID} & set(request.prompt[:-1])
    assert requests == random_requests(2000)


def test_every_system_has_a_turn_in_every_round() -> None:
    figures = measure({"a": saying(7), "b": saying(7)}, random_requests(3), rounds=2)
    assert [each.system for each in figures] == ["a", "b"]
    assert [len(each.seconds) for each in figures] == [2, 2]


def test_the_median_round_counts() -> None:
    result = figure("a", [2.0, 50.0, 4.0], [Request((0,), 10), Request((0,), 30)])
    assert result.requests_per_second == pytest.approx(0.5)
    assert result.tokens_per_second == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("other", "told"), [(saying(8), "another system"), (saying(7, short_by=1), "b gives")]
)
def test_wrong_answers_are_not_timed(other: Translate, told: str) -> None:
    with pytest.raises(click.ClickException, match=told):
        measure({"a": saying(7), "b": other}, random_requests(3), rounds=1)


def test_a_model_that_does_not_heed_its_source_is_not_timed() -> None:
    with pytest.raises(click.ClickException, match="one target for different sources"):
        measure({"a": saying(7, repeating=True)}, random_requests(3), rounds=1)
