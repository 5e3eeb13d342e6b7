"""Real texts of the lengths that people send."""

from __future__ import annotations

import random
from pydoc_data import topics

_LONGEST_WORDS = 150
_MEDIAN_WORDS = 20
_SPREAD = 0.8  # of the logarithm: one text in six is longer than 44 words


def real_texts(count: int, seed: int = 0) -> list[str]:
    """Parts of the documentation that Python carries, each from a random place.

    Their lengths are lognormal, with a median of 20 words and at most 150.
    """
    chance = random.Random(seed)
    words = " ".join(topics.topics.values()).split()
    texts = []
    for _ in range(count):
        length = round(_MEDIAN_WORDS * chance.lognormvariate(0.0, _SPREAD))
        length = min(max(length, 1), _LONGEST_WORDS)
        first = chance.randrange(len(words) - length)
        texts.append(" ".join(words[first : first + length]))
    return texts
