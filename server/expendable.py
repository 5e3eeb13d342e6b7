"""Threads that the end of the process does not wait for: one may hang, or take minutes to load."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NoReturn, TypeVar

Result = TypeVar("Result")


class ExpendableThread(threading.Thread):
    """A thread that may be left behind, in the middle of what it does."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        super().__init__(target=work, name=name, daemon=True)


async def run_expendably(work: Callable[[], Result], name: str) -> Result:
    """Runs blocking work on a thread of its own, which goes on alone where this is cancelled.

    Returns and raises what the work does.
    """
    outcome: Future[Result] = Future()
    outcome.set_running_or_notify_cancel()  # from here on it cannot be cancelled

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    ExpendableThread(run, name).start()
    return await asyncio.wrap_future(outcome)


def leave(code: int) -> NoReturn:
    """Ends the process with an exit code, and at once where a thread has been left behind.

    Its native code might crash while the interpreter is taken down around it, and that would be
    the exit code then.
    """
    if any(isinstance(thread, ExpendableThread) for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
