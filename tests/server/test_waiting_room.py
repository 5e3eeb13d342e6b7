"""The bound on what may wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Gauge

from server.errors import QueueFull, QueueTokensFull
from server.waiting_room import WaitingRoom


def depth() -> Gauge:
    return Gauge("depth", "Requests that wait.", registry=None)


def shown(gauge: Gauge) -> float:
    [metric] = gauge.collect()
    return metric.samples[0].value


def test_requests_are_bounded() -> None:
    waiting = depth()
    room = WaitingRoom(max_requests=2, max_tokens=100, depth=waiting)
    room.enter(1)
    room.enter(1)
    with pytest.raises(QueueFull, match="2 requests are waiting"):
        room.enter(1)
    room.leave(1)
    room.enter(1)
    assert shown(waiting) == 2


def test_tokens_are_bounded() -> None:
    room = WaitingRoom(max_requests=10, max_tokens=100, depth=depth())
    room.enter(60)
    with pytest.raises(QueueTokensFull, match="60 tokens are waiting and 41 more exceed the 100"):
        room.enter(41)
    room.enter(40)


def test_an_empty_room_takes_a_request_beyond_its_tokens() -> None:
    room = WaitingRoom(max_requests=10, max_tokens=100, depth=depth())
    room.enter(500)
    with pytest.raises(QueueTokensFull):
        room.enter(1)


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans())))
def test_what_waits_never_exceeds_the_bounds(arrivals: list[tuple[int, bool]]) -> None:
    shows = depth()
    room = WaitingRoom(max_requests=4, max_tokens=100, depth=shows)
    waiting: list[int] = []
    for tokens, one_leaves in arrivals:
        try:
            room.enter(tokens)
        except QueueFull:
            assert len(waiting) == 4 or sum(waiting) + tokens > 100
        else:
            waiting.append(tokens)
        assert len(waiting) <= 4
        assert sum(waiting) <= 100
        if waiting and one_leaves:
            room.leave(waiting.pop(0))
        assert shown(shows) == len(waiting)


def test_rooms_of_one_model_are_shown_together() -> None:
    waiting = depth()
    embeddings, generations = (WaitingRoom(4, 100, waiting) for _ in range(2))
    embeddings.enter(1)
    generations.enter(1)
    generations.enter(1)
    assert shown(waiting) == 3
    embeddings.leave(1)
    assert shown(waiting) == 2
