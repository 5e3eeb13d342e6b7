"""The engine's thread: every command is carried out or refused, every end is told."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from server.engine_thread import EngineThread
from server.errors import Draining, Interrupted, ServerError, StepFailed


class Worker:
    """Counts what it is asked to do; its work is the commands."""

    def __init__(self, *, load_error: Exception | None = None) -> None:
        self.load_error = load_error
        self.iterations = 0
        self.wait: float | None = None
        self.abandoned: list[ServerError] = []
        self.fails = False
        self.iterated = threading.Event()

    def load(self) -> None:
        if self.load_error:
            raise self.load_error

    def patience(self) -> float | None:
        return self.wait

    def iterate(self) -> None:
        self.iterations += 1
        self.iterated.set()
        if self.fails:
            raise RuntimeError("injected")

    def abandon(self, error: ServerError) -> None:
        self.abandoned.append(error)


def test_an_idle_thread_waits_for_commands() -> None:
    worker = Worker()
    thread = EngineThread("test", worker)
    thread.start()
    assert thread.alive
    assert worker.iterations == 0
    done = threading.Event()
    thread.post(done.set)
    assert done.wait(10)
    assert worker.iterated.wait(10)
    assert worker.iterations == 1
    thread.stop()
    assert not thread.alive
    assert isinstance(worker.abandoned[0], Interrupted)


def test_what_loading_raises_start_raises() -> None:
    thread = EngineThread("test", Worker(load_error=ValueError("no such file")))
    with pytest.raises(ValueError, match="no such file"):
        thread.start()
    assert not thread.alive
    with pytest.raises(Draining):
        thread.post(lambda: None)
    thread.stop()


def test_a_worker_that_raises_ends_everything_that_is_left() -> None:
    worker = Worker()
    thread = EngineThread("test", worker)
    thread.start()
    worker.fails = True
    thread.post(lambda: None)
    thread.stop()
    assert isinstance(worker.abandoned[0], StepFailed)
    assert not thread.alive
    with pytest.raises(Draining):
        thread.post(lambda: None)


def test_a_command_that_was_taken_is_carried_out_even_at_the_end() -> None:
    worker = Worker()
    thread = EngineThread("test", worker)
    thread.start()
    carried_out: list[int] = []
    for number in range(1000):
        thread.post(partial(carried_out.append, number))
        if number == 500:
            stopper = threading.Thread(target=thread.stop)
            stopper.start()
        if not thread.alive:
            break
    stopper.join()
    assert carried_out == list(range(len(carried_out)))
    assert len(carried_out) >= 501
    assert worker.abandoned


def test_stopping_twice_ends_what_is_left_once() -> None:
    worker = Worker()
    thread = EngineThread("test", worker)
    thread.start()
    thread.stop()
    abandoned = list(worker.abandoned)
    assert {type(error) for error in abandoned} == {Interrupted}
    thread.stop()
    assert not thread.alive
    assert worker.abandoned == abandoned


def test_a_step_that_hangs_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    thread = EngineThread("test", worker)
    thread.start()
    held, release = threading.Event(), threading.Event()

    def hang() -> None:
        held.set()
        release.wait(10)

    monkeypatch.setattr(worker, "iterate", hang)
    thread.post(lambda: None)
    assert held.wait(10)
    assert thread.alive
    monkeypatch.setattr("server.engine_thread._HUNG_SECONDS", -1.0)
    assert not thread.alive
    release.set()
    thread.stop()
