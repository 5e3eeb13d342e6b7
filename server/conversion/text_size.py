"""Texts that are too long whatever their tokens are: refused before anything is tokenised."""

from __future__ import annotations

from server.errors import InputTooLong
from server.tokenizer import Tokenizer

_ALWAYS_BYTES = 1 << 16  # tokenised in a fraction of a second, and mostly blank it may be short


def most_text_bytes(most_tokens: int, tokenizer: Tokenizer) -> int:
    """Bytes in UTF-8 that a text of so many tokens may have.

    More than all its tokens spell it has only where the tokenizer drops something, such as blanks.
    """
    return max(_ALWAYS_BYTES, most_tokens * tokenizer.longest_token_bytes)


def check_text_size(field: str, text: str, most_tokens: int, tokenizer: Tokenizer) -> None:
    """Raises `InputTooLong` for a text that exceeds `most_text_bytes`."""
    size, most = len(text.encode()), most_text_bytes(most_tokens, tokenizer)
    if size > most:
        raise InputTooLong(
            f"{field} has {size} bytes; this model takes at most {most_tokens} tokens, and so at "
            f"most {most} bytes"
        )
