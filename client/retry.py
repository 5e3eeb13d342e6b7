"""When a call that failed is tried again; pure, so that both clients share it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from client.errors import CallFailed


@dataclass(frozen=True)
class Retry:
    """How often a failed call is tried again; off unless asked for.

    Only failures that promise to pass are retried: `UNAVAILABLE`, and `RESOURCE_EXHAUSTED` where
    the server says when to come back (a full queue does, a request over a limit does not). Every
    call is a pure computation, so that repeating one is safe. Streams are never repeated.

    Attributes:
        retries: tries after the first.
        first_delay: seconds before the first retry where the server names none; doubles each time.
        longest_delay: seconds; a server that asks for more is not waited for.
        jitter: delays are lengthened at random by up to this fraction, or all clients that were
            refused at once would come back at once.
    """

    retries: int = 0
    first_delay: float = 0.1
    longest_delay: float = 10.0
    jitter: float = 0.25

    def delay(self, failure: CallFailed, tries: int) -> float | None:
        """Seconds to wait after try number `tries` (from 1) failed; None where to give up."""
        if tries > self.retries:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.longest_delay else None
        if failure.code is grpc.StatusCode.UNAVAILABLE:
            return min(self.first_delay * 2.0 ** (tries - 1), self.longest_delay)
        return None


class Tries:
    """The tries of one call, all within the call's timeout."""

    def __init__(
        self,
        retry: Retry,
        timeout: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._retry = retry
        self._clock = clock
        self._deadline = None if timeout is None else clock() + timeout
        self._failed = 0

    def remaining(self) -> float | None:
        """Seconds left of the timeout; None without one."""
        return None if self._deadline is None else max(0.0, self._deadline - self._clock())

    def delay_after(self, failure: CallFailed) -> float:
        """Seconds to wait before the next try.

        Raises:
            CallFailed: the failure itself, where there is to be no next try.
        """
        self._failed += 1
        delay = self._retry.delay(failure, self._failed)
        if delay is None:
            raise failure
        delay *= 1.0 + self._retry.jitter * random.random()
        remaining = self.remaining()
        if remaining is not None and delay >= remaining:
            raise failure
        return delay
