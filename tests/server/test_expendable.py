"""Work that may be left behind: its result, its error, its cancellation, and the end around it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from server.expendable import ExpendableThread, run_expendably

LEAVE = """
import atexit, sys, time
from server.expendable import ExpendableThread, leave
if sys.argv[1] == "behind":
    ExpendableThread(lambda: time.sleep(600), "sleeper").start()
print("said")
atexit.register(print, "taken down")
leave(7)
"""


async def test_what_the_work_returns_and_raises_comes_out() -> None:
    assert await run_expendably(lambda: 5, "five") == 5
    with pytest.raises(ValueError, match="no"):
        await run_expendably(lambda: int("no"), "fails")


async def test_work_goes_on_alone_where_nobody_waits_any_more() -> None:
    began, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait(10)
        ended.set()

    waiting = asyncio.create_task(run_expendably(work, "work"))
    while not began.is_set():  # noqa: ASYNC110 - set by a thread
        await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not ended.is_set()
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 10)


@pytest.mark.parametrize(("thread", "said"), [("behind", "said\n"), ("none", "said\ntaken down\n")])
def test_the_interpreter_is_not_taken_down_around_a_thread(thread: str, said: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", LEAVE, thread], capture_output=True, text=True, timeout=30
    )
    assert result.returncode == 7
    assert result.stdout == said


def test_an_expendable_thread_does_not_keep_the_process() -> None:
    assert ExpendableThread(lambda: None, "any").daemon
