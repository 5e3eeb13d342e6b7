"""The thread that owns an engine's sessions, cache and state; commands go in, events come out."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

import structlog

from server.errors import Draining, Interrupted, ServerError, StepFailed
from server.expendable import ExpendableThread

_log = structlog.get_logger()
_HUNG_SECONDS = 120.0  # far beyond any step
Command = Callable[[], None]


class Worker(Protocol):
    """What runs on the thread; every method is called there and nowhere else."""

    def load(self) -> None:
        """Opens the sessions and warms up; what it raises, `EngineThread.start` raises."""

    def patience(self) -> float | None:
        """Seconds to wait for another command: 0 where there is work, None where there is none."""

    def iterate(self) -> None:
        """Does one step, if there is one to do."""

    def abandon(self, error: ServerError) -> None:
        """Ends everything that is left with an error."""


class EngineDead(Exception):
    """The model cannot run at all any more; ends the thread."""


class EngineThread:
    """Runs a worker: commands, one step, commands, one step, ...

    A worker that raises has lost its state: everything left is ended and the thread with it.
    """

    def __init__(self, name: str, worker: Worker) -> None:
        self._worker = worker
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._thread = ExpendableThread(self._run, name)
        self._ready: Future[None] = Future()
        self._door = threading.Lock()
        self._closed = True
        self._stopping = False
        self._step_began: float | None = None

    @property
    def alive(self) -> bool:
        """Whether commands are carried out: the thread runs and no step hangs."""
        began = self._step_began
        hung = began is not None and time.monotonic() - began > _HUNG_SECONDS
        return not self._closed and not hung

    def start(self) -> None:
        """Starts the thread and waits until the worker has loaded; raises what loading raises."""
        self._thread.start()
        self._ready.result()

    def post(self, command: Command) -> None:
        """Has a command carried out between two steps.

        Raises:
            Draining: the thread has not begun, or has ended.
        """
        with self._door:
            if self._closed:
                raise Draining("the model is not running")
            self._commands.put(command)

    def stop(self) -> None:
        """Ends the thread after its current step, and what is left with `Interrupted`; waits."""
        try:
            self.post(self._stop)
        except Draining:
            return
        self._thread.join()

    def _stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        try:
            self._worker.load()
        except BaseException as error:
            self._ready.set_exception(error)
            return
        self._closed = False
        self._ready.set_result(None)
        reason: ServerError = Interrupted("the server is stopping")
        try:
            while not self._stopping:
                self._take_commands(self._worker.patience())
                self._step_began = time.monotonic()
                self._worker.iterate()
                self._step_began = None
        except Exception:
            _log.exception("the engine has failed", engine=self._thread.name)
            reason = StepFailed("the model has failed")
        finally:
            self._close(reason)

    def _take_commands(self, patience: float | None) -> None:
        """Carries out the commands that are there, or the first that comes in time."""
        try:
            if patience != 0:
                self._commands.get(timeout=patience)()
            while True:
                self._commands.get_nowait()()
        except queue.Empty:
            return

    def _close(self, reason: ServerError) -> None:
        """Nothing that was accepted is left without an end, not even what has just come."""
        with self._door:
            self._closed = True
        self._worker.abandon(reason)
        self._take_commands(0)
        self._worker.abandon(reason)
