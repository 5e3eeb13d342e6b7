"""Events arrive together and in order, but not at those who have gone."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from server.outbox import Outbox
from server.request import Ticket


async def test_events_arrive_in_order_on_the_loop() -> None:
    outbox = Outbox(asyncio.get_running_loop())
    received: list[int] = []
    first, second = Ticket(), Ticket()
    for number in range(6):
        outbox.add(first if number % 2 else second, received.append, number)
    outbox.flush()
    assert received == []
    await asyncio.sleep(0)
    assert received == list(range(6))


async def test_nothing_arrives_after_a_cancellation() -> None:
    outbox = Outbox(asyncio.get_running_loop())
    received: list[int] = []
    gone, here = Ticket(), Ticket()
    outbox.add(gone, received.append, 1)
    outbox.add(here, received.append, 2)
    outbox.flush()
    gone.cancelled = True  # after the events have left, before they arrive
    await asyncio.sleep(0)
    assert received == [2]


async def test_one_receivers_fault_is_not_its_neighbours() -> None:
    outbox = Outbox(asyncio.get_running_loop())
    received: list[int] = []

    def fail(event: int) -> None:
        raise RuntimeError("injected")

    outbox.add(Ticket(), fail, 1)
    outbox.add(Ticket(), received.append, 2)
    outbox.flush()
    await asyncio.sleep(0)
    assert received == [2]


def test_a_closed_loop_is_no_error() -> None:
    loop = asyncio.new_event_loop()
    outbox = Outbox(loop)
    loop.close()
    received: list[int] = []
    outbox.add(Ticket(), received.append, 1)
    with capture_logs() as logs:
        outbox.flush()
        outbox.flush()
    assert [(entry["event"], entry["events"]) for entry in logs] == [
        ("events dropped: the event loop is closed", 1)
    ]
    assert not received
