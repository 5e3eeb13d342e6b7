"""Work in another process: what it gives, what it raises, and how it ends."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from export.manifest import ManifestError
from export.own_process import ProcessEnded, run_apart
from export.progress import SilentSteps, Steps


class _NotedSteps(SilentSteps):
    def __init__(self) -> None:
        self.noted: list[int | str] = []

    def expect(self, steps: int) -> None:
        self.noted.append(steps)

    def advance(self, label: str) -> None:
        self.noted.append(label)


class _PickyError(Exception):
    """Cannot be made from its arguments again, as its copy in another process would be."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def _work(task: str, steps: Steps) -> int:
    steps.expect(2)
    steps.advance(task)
    match task:
        case "refuse":
            raise ManifestError("no weights")
        case "refuse otherwise":
            raise _PickyError("one", "two")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def test_the_result_and_the_steps_come_back() -> None:
    steps = _NotedSteps()
    assert run_apart(_work, "work", steps) != os.getpid()
    assert steps.noted == [2, "work"]
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        ("refuse", ManifestError, "^no weights$"),
        ("refuse otherwise", ProcessEnded, "^failed with _PickyError: one and two$"),
        ("die", ProcessEnded, "^ended with exit code -9$"),
    ],
)
def test_what_goes_wrong_is_told(task: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run_apart(_work, task, SilentSteps())
    assert not multiprocessing.active_children()
