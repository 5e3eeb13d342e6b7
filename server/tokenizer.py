"""Text to ids and back, over one tokenizer whose configuration never changes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Encoding
from tokenizers import Tokenizer as RawTokenizer

from server.errors import InvalidInput
from server.plain_text import PlainTextEncoder
from server.text_beginning import beginning_of, certain_tokens

Span = tuple[int, int]  # start and end in characters, end exclusive
_LONG = 2048  # characters or ids that take about a millisecond
_Placed = tuple[int, Span]  # the index of a token in its encoding, and where it stands


@dataclass(frozen=True)
class Token:
    """One token of a text, and where it stands there, in characters (end exclusive).

    Tokens that the tokenizer adds stand nowhere: `start` and `end` are 0.
    """

    id: int
    text: str
    start: int
    end: int


class Tokenizer:
    """A tokenizer.json, without its padding and truncation.

    May be shared by threads, because nothing of it changes once it is made. (Changing the
    truncation for one call silently truncates the calls of other threads.)

    A *control token* is an added token that is special, or longer than a character and not blank:
    an end-of-turn mark, but not a run of spaces. Whether text that spells one becomes it, or stays
    text, is the caller's choice.

    Attributes:
        vocabulary_size: every id is below it; the model's, where that is larger.
        control_tokens: spellings by id.
        special_ids: the ids that decoding leaves out where it skips special tokens.
        longest_token_bytes: no token's spelling has more bytes in UTF-8.
        decoder: the `decoder` section of the file; None without one.
    """

    def __init__(self, content: bytes, vocabulary_size: int = 0) -> None:
        """Reads the bytes of a tokenizer.json."""
        description: dict[str, Any] = json.loads(content)
        self._raw = RawTokenizer.from_str(content.decode())
        self._raw.no_padding()
        self._raw.no_truncation()
        self.decoder: dict[str, Any] | None = description["decoder"]
        self.vocabulary_size = max(vocabulary_size, max(self._raw.get_vocab().values()) + 1)
        added = self._raw.get_added_tokens_decoder()
        control = {i: token for i, token in added.items() if _controls(token)}
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self.control_tokens = {i: token.content for i, token in control.items()}
        # A spelling that is compared with normalised text cannot be looked for in the text itself.
        self._spellings = [token.content for token in control.values() if not token.normalized]
        self._normalises_spellings = len(self._spellings) < len(control)
        self.longest_token_bytes = max(len(token.encode()) for token in self._raw.get_vocab())
        self._unknown_id = _unknown_id(self._raw, description["model"])
        self._closing = _closing_ids(self._raw)
        self._plain = PlainTextEncoder(description, self.control_tokens)

    def encode(
        self, text: str, *, add_special_tokens: bool = True, parse_control_tokens: bool = True
    ) -> list[int]:
        """Ids of a text; `parse_control_tokens` False keeps all of it text."""
        plain = [] if parse_control_tokens else [(0, len(text))]
        return self.encode_around(text, plain, add_special_tokens=add_special_tokens)

    def encode_around(
        self, text: str, plain: Sequence[Span], *, add_special_tokens: bool = True
    ) -> list[int]:
        """Ids of a text in which control tokens that touch a span of `plain` stay text.

        The spans are in the order of the text.
        """
        encoding = self._encode(text, add_special_tokens, offsets=bool(plain))
        ids, done = encoding.ids, 0
        if not plain:
            return ids
        result: list[int] = []
        as_text = functools.cache(self._plain.encode)  # the same few spellings come again
        for index, (start, end) in _touching(self._control_tokens(text, encoding), plain):
            result += ids[done:index]
            result += as_text(text[start:end], start == 0)
            done = index + 1
        return result + ids[done:]

    def encode_beginning(self, text: str, most_characters: int) -> list[int]:
        """First ids of a text, found without reading more of it than so many characters.

        They are those that `encode` gives, as many as are certain, and the special tokens that
        close every text after them.
        """
        beginning = beginning_of(text, most_characters)
        encoding = self._encode(beginning, add_special_tokens=True)
        if len(beginning) == len(text):
            return encoding.ids
        return [*encoding.ids[: certain_tokens(encoding, beginning)], *self._closing]

    def encode_with_offsets(self, text: str, *, add_special_tokens: bool = True) -> list[Token]:
        """The tokens of a text, and where they stand in it."""
        encoding = self._encode(text, add_special_tokens)
        return [
            Token(token_id, token, start, end)
            for token_id, token, (start, end) in zip(
                encoding.ids, encoding.tokens, encoding.offsets, strict=True
            )
        ]

    def control_spans(self, text: str) -> list[Span]:
        """Where a text spells control tokens, without the whitespace that some of them take in."""
        if not self._normalises_spellings and not any(s in text for s in self._spellings):
            return []
        encoding = self._encode(text, add_special_tokens=False)
        spans = [span for _, span in self._control_tokens(text, encoding)]
        return [_trimmed(text, span) for span in spans]

    def truncate(self, ids: Sequence[int], limit: int) -> list[int]:
        """At most `limit` ids; the special tokens that close every text, such as [SEP], stay."""
        if len(ids) <= limit:
            return list(ids)
        closing = self._closing if tuple(ids[-len(self._closing) :]) == self._closing else ()
        return [*ids[: max(limit - len(closing), 0)], *closing][:limit]

    def token(self, token_id: int) -> str:
        """A token as the vocabulary spells it; empty where the model has an id more.

        Raises:
            InvalidInput: there is no such id.
        """
        self._check([token_id])
        return self._raw.id_to_token(token_id) or ""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of ids.

        Raises:
            InvalidInput: an id is outside the vocabulary.
        """
        self._check(ids)
        if len(ids) < _LONG:
            return self._raw.decode(ids, skip_special_tokens=skip_special_tokens)
        (text,) = self._raw.decode_batch([ids], skip_special_tokens=skip_special_tokens)
        return text

    def _encode(self, text: str, add_special_tokens: bool, offsets: bool = True) -> Encoding:
        """The raw encoding; without offsets it takes less time, if the text is long.

        The call for one text holds the interpreter's lock all the while, the call for a batch does
        not. But a batch waits for the threads of the library, which others may keep busy.
        """
        if len(text) < _LONG:
            return self._raw.encode(text, add_special_tokens=add_special_tokens)
        encode_batch = self._raw.encode_batch if offsets else self._raw.encode_batch_fast
        (encoding,) = encode_batch([text], add_special_tokens=add_special_tokens)
        return encoding

    def _check(self, ids: Sequence[int]) -> None:
        for index, token_id in enumerate(ids):
            if not 0 <= token_id < self.vocabulary_size:
                raise InvalidInput(
                    f"ids[{index}] is {token_id}; ids of this model are below "
                    f"{self.vocabulary_size}"
                )

    def _control_tokens(self, text: str, encoding: Encoding) -> list[_Placed]:
        """Index and place of each control token that the text itself gave rise to."""
        ids = encoding.ids
        if self.control_tokens.keys().isdisjoint(ids):
            return []
        return [
            (index, (start, end))
            for index, (token_id, (start, end)) in enumerate(
                zip(ids, encoding.offsets, strict=True)
            )
            if token_id in self.control_tokens
            and start < end  # else it was added, not spelled
            and not (token_id == self._unknown_id and not self._spells_unknown(text[start:end]))
        ]

    def _spells_unknown(self, text: str) -> bool:
        return text.strip() == self.control_tokens[self._unknown_id]


def _touching(tokens: list[_Placed], spans: Sequence[Span]) -> Iterator[_Placed]:
    """Those of the tokens that share a character with a span; both are in the order of the text."""
    following = iter([*spans, (sys.maxsize, sys.maxsize)])
    span_start, span_end = next(following)
    for index, (start, end) in tokens:
        while span_end <= start:
            span_start, span_end = next(following)
        if span_start < end:
            yield index, (start, end)


def _controls(token: AddedToken) -> bool:
    return token.special or (len(token.content) > 1 and not token.content.isspace())


def _unknown_id(raw: RawTokenizer, model: dict[str, Any]) -> int:
    """The id of what is in no vocabulary, or -1: it stands for text that spells nothing."""
    if (unknown_id := model.get("unk_id")) is not None:
        return int(unknown_id)
    if (token := model.get("unk_token")) is None:
        return -1
    token_id = raw.token_to_id(token)
    return -1 if token_id is None else token_id


def _closing_ids(raw: RawTokenizer) -> tuple[int, ...]:
    """The special tokens that are put after a text."""
    encoding = raw.encode("a", add_special_tokens=True)
    ids, mask = encoding.ids, encoding.special_tokens_mask
    last = max((i for i, special in enumerate(mask) if not special), default=-1)
    return tuple(ids[last + 1 :])


def _trimmed(text: str, span: Span) -> Span:
    start, end = span
    spelling = text[start:end].lstrip()
    return end - len(spelling), end - len(spelling) + len(spelling.rstrip())
