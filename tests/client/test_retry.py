from __future__ import annotations

import grpc
import pytest

from client.errors import CallFailed
from client.retry import Retry, Tries

UNAVAILABLE = CallFailed(grpc.StatusCode.UNAVAILABLE, "draining")
QUEUE_FULL = CallFailed(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_after=1.0)
TOO_LARGE = CallFailed(grpc.StatusCode.RESOURCE_EXHAUSTED, "over a limit")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_retried_unless_asked_for() -> None:
    assert Retry().delay(UNAVAILABLE, tries=1) is None
    with pytest.raises(CallFailed):
        Tries(Retry(), timeout=None).delay_after(UNAVAILABLE)


def test_delays_double_up_to_the_longest() -> None:
    retry = Retry(retries=9, first_delay=0.1, longest_delay=0.5)
    assert [retry.delay(UNAVAILABLE, tries) for tries in (1, 2, 3, 4, 5)] == [
        0.1,
        0.2,
        0.4,
        0.5,
        0.5,
    ]


def test_the_server_names_the_delay_of_a_full_queue() -> None:
    assert Retry(retries=2).delay(QUEUE_FULL, tries=2) == 1.0
    assert Retry(retries=2).delay(QUEUE_FULL, tries=3) is None
    assert Retry(retries=2, longest_delay=0.5).delay(QUEUE_FULL, tries=1) is None


@pytest.mark.parametrize(
    "failure",
    [TOO_LARGE, *(CallFailed(code, "") for code in grpc.StatusCode if code.name != "UNAVAILABLE")],
    ids=lambda failure: failure.code.name,
)
def test_what_cannot_pass_is_never_retried(failure: CallFailed) -> None:
    assert Retry(retries=5).delay(failure, tries=1) is None


def test_all_tries_fit_into_one_timeout() -> None:
    clock = Clock()
    tries = Tries(Retry(retries=9, jitter=0.0), timeout=2.5, clock=clock)
    assert tries.remaining() == 2.5
    assert tries.delay_after(QUEUE_FULL) == 1.0
    clock.now += 1.2
    assert tries.remaining() == pytest.approx(1.3)
    assert tries.delay_after(QUEUE_FULL) == 1.0
    clock.now += 1.0
    with pytest.raises(CallFailed, match="full"):
        tries.delay_after(QUEUE_FULL)
    clock.now += 9.0
    assert tries.remaining() == 0.0


def test_jitter_only_lengthens() -> None:
    delays = [
        Tries(Retry(retries=1, jitter=0.25), timeout=None).delay_after(QUEUE_FULL)
        for _ in range(50)
    ]
    assert all(1.0 <= delay <= 1.25 for delay in delays)
    assert len(set(delays)) > 1
