"""Work in a process of its own: it ends with the call, and its memory goes back to the system."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from export.progress import Steps

_LEAVE_SECONDS = 10.0
Task = TypeVar("Task")
Result = TypeVar("Result")


class ProcessEnded(RuntimeError):
    """A process that ended before it could say what came of its work."""


def run_apart(work: Callable[[Task, Steps], Result], task: Task, steps: Steps) -> Result:
    """Does `work(task, steps)` in a new process, which ends with this call, whatever ends it.

    What goes there and comes back is pickled.

    Raises:
        ProcessEnded: the process was killed; the message has its exit code.
        Exception: what the work raised.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work_and_send, args=(work, task, sender), daemon=True)
    process.start()
    sender.close()  # the process holds the other end alone, so that its death is seen here
    try:
        outcome = _receive(receiver, steps)
        process.join(_LEAVE_SECONDS)  # what libraries hold they give back, where they are let
    except EOFError:
        process.join()
        raise ProcessEnded(f"ended with exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    if outcome.error is not None:
        raise outcome.error
    result: Result = outcome.result
    return result


@dataclass(frozen=True)
class _Outcome:
    result: Any = None
    error: Exception | None = None


class _SentSteps:
    """Tells the parent process."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender

    def expect(self, steps: int) -> None:
        self._sender.send(steps)

    def advance(self, label: str) -> None:
        self._sender.send(label)


def _work_and_send(work: Callable[[Any, Steps], Any], task: Any, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this
    try:
        sender.send(_Outcome(result=work(task, _SentSteps(sender))))
    except Exception as error:
        sender.send(_Outcome(error=_portable(error)))


def _portable(error: Exception) -> Exception:
    """The error itself where it survives the way to another process, or else what it says."""
    try:
        return pickle.loads(pickle.dumps(error)) and error
    except Exception:  # whatever its class makes of its arguments
        return ProcessEnded(f"failed with {type(error).__name__}: {error}")


def _receive(receiver: Connection, steps: Steps) -> _Outcome:
    while True:
        match receiver.recv():
            case _Outcome() as outcome:
                return outcome
            case int(more):
                steps.expect(more)
            case str(label):
                steps.advance(label)
