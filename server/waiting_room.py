"""The bound on what may wait, in requests and in tokens.

The event loop's thread asks for a place before it hands a request to an engine; the engine's thread
gives the place back when the request begins to run, or ends without running.
"""

from __future__ import annotations

import threading

from prometheus_client import Gauge

from server.errors import QueueFull, QueueTokensFull


class WaitingRoom:
    """Counts places; safe to use from any thread.

    Args:
        depth: shows how many requests wait, in all rooms that it is given to.
    """

    def __init__(self, max_requests: int, max_tokens: int, depth: Gauge) -> None:
        self._depth = depth
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._lock = threading.Lock()
        self._requests = 0
        self._tokens = 0

    def enter(self, tokens: int) -> None:
        """Takes a place for a request of so many tokens.

        An empty room takes any request: one that is larger than the bound would otherwise be told
        to try again for ever.

        Raises:
            QueueFull: as many requests wait as may.
            QueueTokensFull: its tokens do not fit beside those that wait.
        """
        with self._lock:
            if self._requests >= self._max_requests:
                raise QueueFull(
                    f"{self._requests} requests are waiting, as many as --max-queue allows"
                )
            if self._requests and self._tokens + tokens > self._max_tokens:
                raise QueueTokensFull(
                    f"{self._tokens} tokens are waiting and {tokens} more exceed the "
                    f"{self._max_tokens} of --max-queue-tokens"
                )
            self._requests += 1
            self._tokens += tokens
            self._depth.inc()

    def leave(self, tokens: int) -> None:
        """Gives the place of a request of so many tokens back."""
        with self._lock:
            self._requests -= 1
            self._tokens -= tokens
            self._depth.dec()
