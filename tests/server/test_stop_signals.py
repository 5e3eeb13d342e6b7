"""The first signal asks to stop, the second to hurry, and Ctrl-C is told apart at the end."""

from __future__ import annotations

import signal

import pytest

from server.stop_signals import StopSignals


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
