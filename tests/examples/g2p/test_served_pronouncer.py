"""Asking a server: many callers, answers in order."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from examples.g2p.served_pronouncer import ServedPronouncer

WORDS = [f"word{number}" for number in range(64)]


@dataclass(frozen=True)
class Answer:
    text: str


class ScriptedClient:
    """Says a word's characters; answers nobody before 32 callers wait."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(32, timeout=10)

    def generate(self, prompt: str, *, model: str) -> Answer:
        assert model == "g2p"
        self.barrier.wait()
        return Answer(" ".join(prompt))


class FailingClient:
    def generate(self, prompt: str, *, model: str) -> Answer:
        raise ConnectionError(prompt)


def test_answers_are_in_the_order_of_the_words() -> None:
    client: Any = ScriptedClient()
    assert ServedPronouncer(client, "g2p")(WORDS) == [tuple(word) for word in WORDS]


def test_a_call_that_fails_is_told() -> None:
    client: Any = FailingClient()
    with pytest.raises(ConnectionError, match="word0"):
        ServedPronouncer(client, "g2p")(WORDS)
