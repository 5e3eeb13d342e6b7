"""What a beginning tells of a text's tokens holds for the whole text, whatever splits it."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from tokenizers import Tokenizer as RawTokenizer

from server.text_beginning import beginning_of
from server.tokenizer import Tokenizer
from tests.server import tokenizers

# As Llama 3 and Qwen 2 have it.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GROUPS_OF_DIGITS = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))"  # from the right


def _split_by(*patterns: str) -> Callable[[], bytes]:
    def make() -> bytes:
        description = json.loads(tokenizers.byte_level())
        vocabulary = description["model"]["vocab"]
        vocabulary["11"] = max(_ids(description)) + 1
        description["model"]["merges"].append(["1", "1"])
        raw = RawTokenizer.from_str(json.dumps(description))
        raw.normalizer = normalizers.NFC()
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
        whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        raw.pre_tokenizer = pre_tokenizers.Sequence([*splits, whole])
        return raw.to_str().encode()

    return make


def _ids(description: dict[str, Any]) -> list[int]:
    """All ids of a tokenizer, those of added tokens too."""
    added = [token["id"] for token in description["added_tokens"]]
    return [*description["model"]["vocab"].values(), *added]


def _unigram_with_mask() -> bytes:
    """As XLM-RoBERTa: what stands for a masked word takes in the blanks before it."""
    raw = RawTokenizer.from_str(tokenizers.unigram().decode())
    raw.normalizer = normalizers.NFKC()
    raw.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    return raw.to_str().encode()


SPLITTING = {
    "BERT": tokenizers.word_piece,
    "GPT-2": tokenizers.byte_level,
    "Llama 3": _split_by(_WORDS),
    "digits from the right": _split_by(_GROUPS_OF_DIGITS, _WORDS),
    "Unigram": _unigram_with_mask,
    "words": tokenizers.words,
}
_RUNS = ["a", "1", "٣", " ", "\n", "\t", ".", "#", "東", "é", "\u0301", "\u0323", "🇩🇪", "\u200d"]
_WHOLE = ["the cat ", " one two", "cats.", "don't ", "<mask>", "<|im_end|>", "[SEP]", "é ü", "</s>"]
_PIECES = st.one_of(
    st.sampled_from(_WHOLE),
    st.tuples(st.sampled_from(_RUNS), st.sampled_from([1, 2, 3, 50, 300])).map(
        lambda pair: pair[0] * pair[1]
    ),
    st.text(max_size=5),
)
_TEXTS = st.lists(_PIECES, max_size=40).map("".join)


@cache
def tokenizer(kind: str) -> Tokenizer:
    return Tokenizer(SPLITTING[kind]())


@pytest.mark.parametrize("kind", SPLITTING)
@given(text=_TEXTS, most=st.integers(0, 3000))
@example(text="1" * 1000 + " " + "1" * 1001, most=1500)
@example(text="the cat " * 40 + " " * 600 + "<mask>", most=925)
@example(text="e" + "\u0301" * 600 + "\u0323", most=601)
@settings(max_examples=80, deadline=None)
def test_first_tokens_are_those_of_the_whole(kind: str, text: str, most: int) -> None:
    subject = tokenizer(kind)
    whole = subject.encode(text)
    found = subject.encode_beginning(text, most)
    if len(text) <= most:
        assert found == whole
    else:
        certain = len(found) - len(subject._closing)
        assert certain >= 0
        assert found[:certain] == whole[:certain]
        assert found[certain:] == whole[len(whole) - len(subject._closing) :]


@pytest.mark.parametrize("kind", SPLITTING)
def test_most_of_a_beginning_is_certain(kind: str) -> None:
    subject, text = tokenizer(kind), "the cat, one two 12 " * 200
    found = subject.encode_beginning(text, 2000)
    assert len(found) > 0.8 * len(subject.encode(text[:2000]))


def test_a_tokenizer_that_takes_a_text_as_one_word_is_certain_of_nothing() -> None:
    subject = Tokenizer(tokenizers.sentence_piece())
    assert len(subject.encode_beginning("a b " * 1000, 2000)) <= 1


@given(text=_TEXTS, most=st.integers(0, 3000))
def test_a_beginning_ends_where_nothing_is_joined(text: str, most: int) -> None:
    beginning = beginning_of(text, most)
    assert text.startswith(beginning)
    assert len(beginning) <= most
    for left, right in pairwise(text[len(beginning) - 1 : len(beginning) + 1] if beginning else ""):
        assert not (left.isnumeric() and right.isnumeric())
        assert not unicodedata.combining(right)
