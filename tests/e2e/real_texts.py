"""Real English of any length in tokens, from the documentation that Python carries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pydoc_data import topics

from tokenizers import Tokenizer


def real_texts(tokenizer: Tokenizer, token_counts: Sequence[int]) -> list[str]:
    """One text of each length, consecutive parts of one corpus.

    A text may come out a token or two off: cut, its last word can read differently.
    """
    corpus = _corpus()
    encoding = tokenizer.encode(corpus, add_special_tokens=False)
    texts, first = [], 0
    for count in token_counts:
        start, end = encoding.offsets[first][0], encoding.offsets[first + count - 1][1]
        texts.append(corpus[start:end].strip())
        first += count
    return texts


def real_ids(tokenizer: Tokenizer, token_counts: Sequence[int]) -> list[list[int]]:
    """The ids of one text of exactly each length, consecutive parts of one corpus."""
    ids = iter(tokenizer.encode(_corpus(), add_special_tokens=False).ids)
    return [list(islice(ids, count)) for count in token_counts]


def _corpus() -> str:
    return " ".join(" ".join(topics.topics.values()).split())
