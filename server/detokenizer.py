"""Ids to text as they arrive, such that the pieces are one decode of all of them."""

from __future__ import annotations

import codecs
import copy
import re
from enum import Enum, auto
from typing import Any, Protocol

from server.tokenizer import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class Detokenizer:
    """The text of one completion.

    Sends nothing that a later token could change: not the beginning of a character, nor byte
    tokens (`<0xF0>`) before their run has ended, because one bad byte spoils its whole run. Of a
    decoder that is not known here, nothing is sent before the end. Each token costs the same,
    however long the text.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skipped: frozenset[int] = (
            tokenizer.special_ids if skip_special_tokens else frozenset()
        )
        joining = _joining(tokenizer.decoder)
        self._text: _Text = (
            _ByteText() if joining is _Joining.BYTES else _TokenText(tokenizer, joining)
        )

    def push(self, token_id: int) -> str:
        """Adds a token; the text that is now certain."""
        if token_id in self._skipped or not (token := self._tokenizer.token(token_id)):
            return ""
        return self._text.push(token_id, token)

    def finish(self) -> str:
        """The rest of the text; an unfinished character is decoded as the tokenizer does."""
        return self._text.finish()

    def fork(self) -> Detokenizer:
        """One that goes on from here by itself."""
        other = copy.copy(self)
        other._text = self._text.fork()
        return other


class _Joining(Enum):
    """How a decoder makes one text of many tokens."""

    BYTES = auto()  # the tokens' bytes, joined, are UTF-8
    TOKENS = auto()  # every token has a text of its own, but the first may have another
    BYTE_RUNS = auto()  # the same, but neighbouring byte tokens are decoded together
    WHOLE = auto()  # not known: any token may change any text


def _joining(decoder: dict[str, Any] | None) -> _Joining:
    if decoder is None:
        return _Joining.TOKENS
    if decoder["type"] == "ByteLevel":
        return _Joining.BYTES
    if decoder["type"] in ("WordPiece", "Metaspace"):
        return _Joining.TOKENS
    if decoder["type"] == "Sequence":
        return _joining_of_sequence(decoder["decoders"])
    return _Joining.WHOLE


def _joining_of_sequence(stages: list[dict[str, Any]]) -> _Joining:
    """The form of Llama 2 and its kin: Replace, ByteFallback, Fuse, and Strip of one space."""
    types = [stage["type"] for stage in stages]
    if types not in (
        ["Replace", "ByteFallback", "Fuse"],
        ["Replace", "ByteFallback", "Fuse", "Strip"],
        ["ByteFallback", "Metaspace"],
    ):
        return _Joining.WHOLE
    strips_more = any(s["type"] == "Strip" and (s["start"] > 1 or s["stop"] > 0) for s in stages)
    return _Joining.WHOLE if strips_more else _Joining.BYTE_RUNS


class _Text(Protocol):
    """Text that grows by tokens, none of which is to be skipped."""

    def push(self, token_id: int, token: str) -> str: ...

    def finish(self) -> str: ...

    def fork(self) -> _Text: ...


class _ByteText:
    """Text of byte-level tokens."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int, token: str) -> str:
        return self._decoder.decode(_token_bytes(token))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)

    def fork(self) -> _ByteText:
        other = _ByteText()
        other._decoder.setstate(self._decoder.getstate())
        return other


class _TokenText:
    """Text that is decoded a few tokens at a time.

    Only the first token of a text may be decoded differently from the others. So later ones are
    decoded behind some token of known text, which then is the first.
    """

    def __init__(self, tokenizer: Tokenizer, joining: _Joining) -> None:
        self._tokenizer = tokenizer
        self._joining = joining
        self._pending: list[int] = []
        self._lead: list[int] = []  # none before the text begins
        self._lead_length = 0

    def push(self, token_id: int, token: str) -> str:
        self._pending.append(token_id)
        in_run = self._joining is _Joining.BYTE_RUNS and _BYTE_TOKEN.fullmatch(token)
        if in_run or self._joining is _Joining.WHOLE:
            return ""
        return self.finish()

    def finish(self) -> str:
        if not self._pending:
            return ""
        text = self._decode([*self._lead, *self._pending])[self._lead_length :]
        self._pending = []
        if not self._lead:
            self._lead, self._lead_length = self._find_lead()
        return text

    def fork(self) -> _TokenText:
        other = copy.copy(self)
        other._pending = list(self._pending)
        return other

    def _find_lead(self) -> tuple[list[int], int]:
        """A token with a text, which is no byte token."""
        for token_id in range(self._tokenizer.vocabulary_size):
            text = self._decode([token_id])
            if text and not _BYTE_TOKEN.fullmatch(self._tokenizer.token(token_id)):
                return [token_id], len(text)
        return [], 0  # then no text is ever decoded

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)


def _byte_of_character() -> dict[str, int]:
    """The alphabet of byte-level tokens (GPT-2): a printable character for every byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {chr(byte): byte for byte in printable}
    return characters | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _byte_of_character()


def _token_bytes(token: str) -> bytes:
    """The bytes of a token; an added token may be spelled outside of the alphabet."""
    try:
        return bytes(_BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:
        return token.encode()
