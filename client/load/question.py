"""What is asked of a server; the answer depends on nothing but the question."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EmbedQuestion:
    """Texts whose vectors are wanted."""

    model: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class GenerateQuestion:
    """A prompt to continue; greedily at temperature 0, else by the seed."""

    model: str
    prompt: str
    max_new_tokens: int
    temperature: float
    seed: int


Question = EmbedQuestion | GenerateQuestion
