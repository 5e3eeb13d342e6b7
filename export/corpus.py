"""Text to measure drift on: the language reference that every Python carries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from platform import python_version
from pydoc_data.topics import topics

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

NAME = f"pydoc_data.topics of Python {python_version()}"

Ids = NDArray[np.int64]

_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z])|\n\n|\n[*=~-]+\n")
_SHORTEST, _LONGEST = 20, 400  # characters of a sentence
_CHARACTERS_PER_TOKEN = 16  # more than any tokenizer's mean


def corpus_tokens(tokenizer: bytes, vocab_size: int, count: int) -> Ids:
    """The first `count` tokens; `tokenizer` is the content of tokenizer.json."""
    text = "\n".join(topics.values())[: count * _CHARACTERS_PER_TOKEN]
    encoded = Tokenizer.from_buffer(tokenizer).encode(text, add_special_tokens=False).ids
    return np.resize(_known(encoded, vocab_size), count)


def corpus_texts(tokenizer: bytes, vocab_size: int, count: int, longest: int) -> list[Ids]:
    """The first `count` sentences as a model reads them, cut to `longest` tokens."""
    encode = Tokenizer.from_buffer(tokenizer).encode
    return [_known(encode(sentence).ids[:longest], vocab_size) for sentence in _sentences()[:count]]


def _sentences() -> list[str]:
    joined = "\n\n".join(topics.values())
    sentences = (" ".join(part.split()) for part in _SENTENCE_END.split(joined))
    return [it for it in sentences if _SHORTEST <= len(it) <= _LONGEST]


def _known(ids: Sequence[int], vocab_size: int) -> Ids:
    """The ids that the model has; a tokenizer may have more."""
    return np.array([index for index in ids if index < vocab_size] or [0], dtype=np.int64)
