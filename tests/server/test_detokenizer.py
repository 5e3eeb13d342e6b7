"""Pieces of text, joined, are one decode of all ids, for every kind of decoder."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.detokenizer import Detokenizer
from server.tokenizer import Tokenizer
from tests.server import tokenizers


@cache
def tokenizer(make: Callable[[], bytes]) -> Tokenizer:
    return Tokenizer(make())


def pieces(tokenizer: Tokenizer, ids: list[int], skip: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=skip)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.finish()]


@pytest.mark.parametrize("make", tokenizers.ALL)
@given(data=st.data(), skip=st.booleans())
@settings(max_examples=300, deadline=None)
def test_joined_pieces_are_one_decode(
    make: Callable[[], bytes], data: st.DataObject, skip: bool
) -> None:
    subject = tokenizer(make)
    ids = data.draw(st.lists(st.integers(0, subject.vocabulary_size - 1), max_size=40))
    assert "".join(pieces(subject, ids, skip)) == subject.decode(ids, skip)


# Ids of whole random bytes and of runs of byte tokens, which uniform ids of a vocabulary rarely
# hold in a row.
@pytest.mark.parametrize("make", tokenizers.ALL)
def test_forks_go_on_apart(make: Callable[[], bytes]) -> None:
    subject = tokenizer(make)
    size = subject.vocabulary_size
    generator = random.Random(3)
    for _ in range(50):
        before, one, two = ([generator.randrange(size) for _ in range(6)] for _ in range(3))
        first = Detokenizer(subject)
        shared = "".join(first.push(each) for each in before)
        second = first.fork()
        texts = [shared, shared]
        for a, b in zip(one, two, strict=True):
            texts[0] += first.push(a)
            texts[1] += second.push(b)
        assert texts[0] + first.finish() == subject.decode([*before, *one])
        assert texts[1] + second.finish() == subject.decode([*before, *two])


@pytest.mark.parametrize("make", [tokenizers.byte_level, tokenizers.sentence_piece])
@given(content=st.one_of(st.binary(max_size=30), st.text(max_size=12).map(str.encode)))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_one_decode(make: Callable[[], bytes], content: bytes) -> None:
    subject = tokenizer(make)
    byte_tokens = [3 + byte for byte in content]
    ids = tokenizers.byte_ids(content) if make is tokenizers.byte_level else byte_tokens
    for cut in range(len(ids) + 1):
        assert "".join(pieces(subject, ids[:cut])) == subject.decode(ids[:cut])


@pytest.mark.parametrize("text", ["👨‍👩‍👧‍👦", "한국어 텍스트", "naïve café", "e\u0301", "🇩🇪!"])
def test_characters_come_whole(text: str) -> None:
    ids = tokenizers.byte_ids(text.encode())
    got = pieces(tokenizer(tokenizers.byte_level), ids)
    assert "".join(got) == text
    assert "\ufffd" not in "".join(got)
    # Each piece but the last one is sent with the byte that completes its character.
    assert [piece for piece in got if piece] == list(text)


def test_a_cut_character_ends_as_the_tokenizer_decodes_it() -> None:
    subject = tokenizer(tokenizers.byte_level)
    ids = tokenizers.byte_ids("a👨".encode()[:-1])
    assert pieces(subject, ids) == ["a", "", "", "", "\ufffd"]
    assert subject.decode(ids) == "a\ufffd"


def test_a_run_of_byte_tokens_waits_for_its_end() -> None:
    subject = tokenizer(tokenizers.sentence_piece)
    good = [3 + byte for byte in "é".encode()]
    letter = next(i for i in range(subject.vocabulary_size) if subject.token(i) == "b")
    assert pieces(subject, [*good, letter]) == ["", "", "éb", ""]
    assert pieces(subject, [*good, 3 + 0xFF, letter]) == ["", "", "", "\ufffd\ufffd\ufffdb", ""]


def test_text_is_sent_as_soon_as_it_is_certain() -> None:
    for make in (tokenizers.word_piece, tokenizers.unigram, tokenizers.words):
        subject = tokenizer(make)
        got = pieces(subject, [subject.vocabulary_size - 1] * 5, skip=False)
        assert all(got[1:-1])
        assert got[-1] == ""


def test_ids_that_the_model_has_and_the_tokenizer_has_not_are_no_text() -> None:
    subject = Tokenizer(tokenizers.byte_level(), vocabulary_size=10_000)
    a = subject.encode("a")
    assert pieces(subject, [*a, 9_999, *a]) == ["a", "", "a", ""]


class CountingTokenizer(Tokenizer):
    """Counts the ids that it decodes."""

    decoded = 0

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        self.decoded += len(ids)
        return super().decode(ids, skip_special_tokens)


@pytest.mark.parametrize(
    "make", [tokenizers.word_piece, tokenizers.unigram, tokenizers.sentence_piece]
)
def test_each_token_costs_the_same(make: Callable[[], bytes]) -> None:
    subject = CountingTokenizer(make())
    ids = [subject.vocabulary_size - 1, subject.vocabulary_size - 2] * 250
    assert "".join(pieces(subject, ids))
    assert subject.decoded < 2.1 * len(ids)
