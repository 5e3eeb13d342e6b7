"""What every engine is to its callers, whatever it computes: the door of one model's thread."""

from __future__ import annotations

import contextlib
from typing import Generic, Protocol, TypeVar

from server.engine_thread import Command, EngineThread, Worker
from server.errors import Draining
from server.request import Ticket
from server.waiting_room import WaitingRoom


class EngineWorker(Worker, Protocol):
    """What an engine's thread runs, as far as every engine knows it."""

    provider: str

    def cancel(self, ticket: Ticket) -> None:
        """Forgets a request whose caller has gone; one that has ended is ignored."""


W = TypeVar("W", bound=EngineWorker)


class Engine(Generic[W]):
    """Hands requests to the thread that works on them; used by the event loop's thread.

    Args:
        name: of the thread.
        worker: what runs on it.
        waiting_room: where requests wait until the worker lets them in.
        max_request_seconds: the most that any request may take.
    """

    def __init__(
        self, name: str, worker: W, waiting_room: WaitingRoom, max_request_seconds: float
    ) -> None:
        self._worker = worker
        self._thread = EngineThread(name, worker)
        self._waiting_room = waiting_room
        self._max_request_seconds = max_request_seconds
        self._draining = False

    @property
    def alive(self) -> bool:
        """Whether requests are worked on."""
        return self._thread.alive

    @property
    def provider(self) -> str:
        """The execution provider that really runs the model; empty before `start`."""
        return self._worker.provider

    def start(self) -> None:
        """Loads and warms up; blocks until the engine is ready.

        Raises:
            ArtefactError, DeviceError: as `open_session`.
        """
        self._thread.start()

    def cancel(self, ticket: Ticket) -> None:
        """Ends a request without any further event; what it holds is free before the next step."""
        ticket.cancelled = True
        with contextlib.suppress(Draining):
            self._thread.post(lambda: self._worker.cancel(ticket))

    def drain(self) -> None:
        """Accepts nothing more; what was accepted goes on."""
        self._draining = True

    def stop(self) -> None:
        """Ends the engine after its current step and what is left with `Interrupted`; blocks."""
        self._draining = True
        self._thread.stop()

    def _latest(self, now: float, deadline: float | None) -> float:
        """When a request that comes now has to end, whatever its caller's deadline is."""
        limit = now + self._max_request_seconds
        return limit if deadline is None else min(limit, deadline)

    def _accept(self, tokens: int, accept: Command) -> None:
        """Takes a place for a request of so many tokens and has the worker accept it.

        Raises:
            QueueFull, QueueTokensFull: too much waits already.
            Draining: the engine accepts nothing more.
        """
        if self._draining:
            raise Draining("the server is stopping")
        self._waiting_room.enter(tokens)
        try:
            self._thread.post(accept)
        except Draining:
            self._waiting_room.leave(tokens)
            raise
