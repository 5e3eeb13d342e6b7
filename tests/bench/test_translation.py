"""How requests are put into batches, and whose answer is whose."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from bench.engines.engine import Ids
from bench.translation import AT_ONCE, in_batches, sorted_by_target
from bench.workload import Request


class Echo:
    """A target is its source's first token, repeated."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def translate(self, sources: Sequence[Ids], new_tokens: Sequence[int]) -> list[list[int]]:
        self.calls.append(list(new_tokens))
        return [[source[0]] * count for source, count in zip(sources, new_tokens, strict=True)]


REQUESTS = [Request((number, 0), 1 + number * 7 % 5) for number in range(2 * AT_ONCE + 1)]
ANSWERS = [[request.prompt[0]] * request.new_tokens for request in REQUESTS]


def test_batches_are_in_the_order_of_arrival() -> None:
    peer = Echo()
    assert in_batches(peer)(REQUESTS) == ANSWERS
    assert [len(call) for call in peer.calls] == [AT_ONCE, AT_ONCE, 1]
    assert [*chain(*peer.calls)] == [request.new_tokens for request in REQUESTS]


def test_the_longest_targets_come_first_and_every_answer_back_to_its_request() -> None:
    peer = Echo()
    assert sorted_by_target(in_batches(peer))(REQUESTS) == ANSWERS
    lengths = [*chain(*peer.calls)]
    assert lengths == sorted(lengths, reverse=True)
