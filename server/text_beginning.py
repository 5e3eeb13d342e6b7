"""The beginning of a long text that tells its first tokens, whatever the rest of it says.

A tokenizer first splits a text into words, from left to right, and then each word into tokens
alone. Where a word ends depends on the few characters behind it. So the words of a beginning that
end well before its end are words of the whole text, and their tokens are its tokens. Two kinds of
characters look further, and the beginning must not end among them: digits, which some tokenizers
group from the right, and marks, which normalisation reorders and joins to the letter before them.

A tokenizer that takes a whole text as one word leaves no word that is certain.
"""

from __future__ import annotations

import unicodedata

from tokenizers import Encoding

_MARGIN = 256  # characters; far more than any tokenizer looks ahead, or a control token is long


def beginning_of(text: str, most_characters: int) -> str:
    """At most so many first characters of a text, to be tokenised in its place."""
    end = most_characters
    while 0 < end < len(text) and _joined(text[end - 1], text[end]):
        end -= 1
    return text[:end]


def certain_tokens(encoding: Encoding, beginning: str) -> int:
    """How many first tokens of a beginning, which `encoding` is of, are those of the whole text.

    Special tokens that open every text count; those that close it do not.
    """
    # A control token may take in all the blanks before it.
    certain_end = len(beginning[:-_MARGIN].rstrip())
    words = encoding.word_ids
    for word, (_, end) in zip(words, encoding.offsets, strict=True):
        if end > certain_end:
            return words.index(word)
    return max((index + 1 for index, word in enumerate(words) if word is not None), default=0)


def _joined(left: str, right: str) -> bool:
    """Whether two neighbours may have to be seen together."""
    return (left.isnumeric() and right.isnumeric()) or unicodedata.combining(right) != 0
