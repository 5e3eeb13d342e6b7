"""What a measured engine can do: continue prompts, or translate sources, together and greedily."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Ids = Sequence[int]


@dataclass(frozen=True)
class Generated:
    """What one call gave.

    Attributes:
        ids: the new tokens of each prompt, `[prompts, new_tokens]`; no end token ends them.
        seconds: when the n-th token of every prompt was there, since the call began.
    """

    ids: list[list[int]]
    seconds: list[float]


class Engine(Protocol):
    """One engine with one checkpoint, on a fixed number of threads."""

    def generate(self, prompts: Sequence[Ids], new_tokens: int) -> Generated:
        """Continues all prompts in one batch, each by exactly that many tokens."""


class Translator(Protocol):
    """One engine with one encoder-decoder, on a fixed number of threads."""

    def translate(self, sources: Sequence[Ids], new_tokens: Sequence[int]) -> list[list[int]]:
        """The targets of all sources, in one batch, each of exactly as many tokens as it says."""
