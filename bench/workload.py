"""What the engines are given: real text as token ids, in lengths drawn from a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pydoc_data import topics

from server.tokenizer import Tokenizer

PROMPT_TOKENS = (16, 512)
NEW_TOKENS = (16, 256)


@dataclass(frozen=True)
class Request:
    """A prompt, and how many tokens every engine has to add to it, whatever they are."""

    prompt: tuple[int, ...]
    new_tokens: int


class RealText:
    """The documentation that Python carries, as one long list of ids."""

    def __init__(self, tokenizer: Tokenizer, seed: int = 0) -> None:
        self._ids = tokenizer.encode("\n\n".join(topics.topics.values()), add_special_tokens=False)
        self._chance = random.Random(seed)

    def prompt(self, length: int) -> tuple[int, ...]:
        """So many ids from a random place."""
        first = self._chance.randrange(len(self._ids) - length)
        return tuple(self._ids[first : first + length])

    def requests(self, count: int) -> list[Request]:
        """Requests of uniformly mixed lengths: prompts 16 to 512, outputs 16 to 256."""
        return [
            Request(
                self.prompt(self._chance.randint(*PROMPT_TOKENS)),
                self._chance.randint(*NEW_TOKENS),
            )
            for _ in range(count)
        ]


def generated_tokens(requests: Sequence[Request]) -> int:
    """The tokens that count: nobody is paid for going on beyond a request's length."""
    return sum(request.new_tokens for request in requests)
