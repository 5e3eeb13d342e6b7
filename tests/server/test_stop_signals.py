"""The first signal asks to stop, the second to hurry, and Ctrl-C is told apart at the end."""

from __future__ import annotations

import asyncio
import signal

import pytest

from server.stop_signals import Stopped, StopSignals, hold_stop_signals


@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_without_hurry(received: signal.Signals) -> None:
    signals = StopSignals()
    signals.note(received)
    assert signals.stop.is_set()
    assert not signals.hurry.is_set()
    assert not signals.interrupted


@pytest.mark.parametrize(
    ("first", "second", "interrupted"),
    [
        (signal.SIGTERM, signal.SIGTERM, False),
        (signal.SIGINT, signal.SIGINT, True),
        (signal.SIGTERM, signal.SIGINT, True),
        (signal.SIGINT, signal.SIGTERM, False),
    ],
)
def test_the_second_signal_hurries(
    first: signal.Signals, second: signal.Signals, interrupted: bool
) -> None:
    signals = StopSignals()
    signals.note(first)
    signals.note(second)
    assert signals.hurry.is_set()
    assert signals.interrupted is interrupted


async def test_work_is_done_unless_a_signal_comes_first() -> None:
    signals = StopSignals()
    assert await signals.or_stop(asyncio.sleep(0, "done")) == "done"
    waiting = asyncio.create_task(signals.or_stop(asyncio.sleep(600)))
    await asyncio.sleep(0.01)
    signals.note(signal.SIGTERM)
    with pytest.raises(Stopped):
        await waiting


async def test_work_is_not_even_begun_after_a_signal() -> None:
    signals, begun = StopSignals(), asyncio.Event()

    async def work() -> None:
        begun.set()

    signals.note(signal.SIGTERM)
    with pytest.raises(Stopped):
        await signals.or_stop(work())
    assert not begun.is_set()


async def test_a_signal_that_was_held_is_noted_once_the_loop_watches() -> None:
    loop, signals = asyncio.get_running_loop(), StopSignals()
    hold_stop_signals()
    try:
        signal.raise_signal(signal.SIGTERM)  # ends this process where it is not held
    finally:
        signals.install(loop)
    await asyncio.wait_for(signals.stop.wait(), 5)
    for watched in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(watched)


async def test_what_work_raises_comes_out() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await StopSignals().or_stop(fail())
