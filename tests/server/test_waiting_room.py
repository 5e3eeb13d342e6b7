"""The bound on what may wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import QueueFull, QueueTokensFull
from server.waiting_room import WaitingRoom


def test_requests_are_bounded() -> None:
    room = WaitingRoom(max_requests=2, max_tokens=100)
    room.enter(1)
    room.enter(1)
    with pytest.raises(QueueFull, match="2 requests are waiting"):
        room.enter(1)
    room.leave(1)
    room.enter(1)
    assert room.requests == 2


def test_tokens_are_bounded() -> None:
    room = WaitingRoom(max_requests=10, max_tokens=100)
    room.enter(60)
    with pytest.raises(QueueTokensFull, match="60 tokens are waiting and 41 more exceed the 100"):
        room.enter(41)
    room.enter(40)


def test_an_empty_room_takes_a_request_beyond_its_tokens() -> None:
    room = WaitingRoom(max_requests=10, max_tokens=100)
    room.enter(500)
    with pytest.raises(QueueTokensFull):
        room.enter(1)


@given(st.lists(st.tuples(st.integers(1, 60), st.booleans())))
def test_what_waits_never_exceeds_the_bounds(arrivals: list[tuple[int, bool]]) -> None:
    room = WaitingRoom(max_requests=4, max_tokens=100)
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
        assert room.requests == len(waiting)
