"""The tokenizer against transformers, and from many threads."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Tokenizer as RawTokenizer
from transformers import AutoTokenizer

from server.errors import InvalidInput
from server.tokenizer import Token, Tokenizer
from tests.model.references import minilm_directory
from tests.server import tokenizers

CLS, SEP = 101, 102


@pytest.fixture(scope="module")
def minilm() -> Tokenizer:
    return Tokenizer((minilm_directory() / "tokenizer.json").read_bytes())


TEXTS = [
    "",
    " ",
    "Deep learning is simple.",
    "\u200b",
    "a\0b",
    "naïve café 東京 👨‍👩‍👧",
    "[SEP] and [MASK]",
    "cat " * 400,
    "dog, " * 900,
]


@pytest.mark.parametrize("special", [True, False])
def test_encodes_as_transformers_without_padding_or_truncation(
    minilm: Tokenizer, special: bool
) -> None:
    reference = AutoTokenizer.from_pretrained(minilm_directory())
    for text in TEXTS:
        wanted = reference(text, add_special_tokens=special, truncation=False, padding=False)
        assert minilm.encode(text, add_special_tokens=special) == wanted.input_ids


@pytest.mark.parametrize("limit", [2, 3, 10, 256])
def test_truncates_as_transformers(minilm: Tokenizer, limit: int) -> None:
    reference = AutoTokenizer.from_pretrained(minilm_directory())
    for text in TEXTS:
        wanted = reference(text, truncation=True, max_length=limit, padding=False).input_ids
        assert minilm.truncate(minilm.encode(text), limit) == wanted


def test_truncation_without_closing_tokens_just_cuts() -> None:
    subject = Tokenizer(tokenizers.byte_level())
    ids = subject.encode("abcdef")
    assert subject.truncate(ids, 4) == ids[:4]
    assert subject.truncate(ids, 100) == ids


def test_ids_of_the_caller_are_cut_without_a_closing_token(minilm: Tokenizer) -> None:
    assert minilm.truncate([5, 6, 7], 2) == [5, 6]
    assert minilm.truncate([CLS, 5, 6, SEP], 3) == [CLS, 5, SEP]


def test_offsets_are_characters(minilm: Tokenizer) -> None:
    tokens = minilm.encode_with_offsets("Ünder 東cats")
    assert tokens[0] == Token(CLS, "[CLS]", 0, 0)
    assert ["Ünder 東cats"[token.start : token.end] for token in tokens[1:-1]] == [
        "Ünder",
        "東",
        "cats",
    ]
    assert [token.id for token in tokens] == minilm.encode("Ünder 東cats")


KINDS = (
    tokenizers.byte_level,
    tokenizers.word_piece,
    tokenizers.sentence_piece,
    tokenizers.unigram,
)
UNKNOWN = ("[UNK]", "<unk>")


@cache
def tokenizer(make: Callable[[], bytes]) -> Tokenizer:
    return Tokenizer(make())


def control_ids(subject: Tokenizer) -> set[int]:
    """Without the one that also stands for text that is in no vocabulary."""
    return {i for i, spelling in subject.control_tokens.items() if spelling not in UNKNOWN}


@pytest.mark.parametrize("make", KINDS)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_plain_text_never_becomes_a_control_token(
    make: Callable[[], bytes], data: st.DataObject
) -> None:
    subject = tokenizer(make)
    spellings = sorted(subject.control_tokens.values())
    pieces = st.sampled_from([*spellings, "a", " ", "\n", "<", "s>", "é", "the ", "cat", "["])
    text = "".join(data.draw(st.lists(pieces, max_size=8)))
    ids = subject.encode(text, add_special_tokens=False, parse_control_tokens=False)
    assert control_ids(subject).isdisjoint(ids)
    if not any(spelling in text for spelling in spellings):
        assert ids == subject.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("make", [tokenizers.byte_level, tokenizers.sentence_piece])
@pytest.mark.parametrize("text", ["</s>", "ab</s>b", "</s></s>", "é<s>", "a</s> <s> b"])
def test_plain_text_decodes_to_itself(make: Callable[[], bytes], text: str) -> None:
    subject = tokenizer(make)
    ids = subject.encode(text, add_special_tokens=False, parse_control_tokens=False)
    # Sentence pieces begin with a space after a control token, one that stays text included.
    assert subject.decode(ids).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("make", KINDS)
def test_added_special_tokens_stay_special(make: Callable[[], bytes]) -> None:
    subject = tokenizer(make)
    assert subject.encode("a", parse_control_tokens=False) == subject.encode("a")


def test_prompts_may_spell_control_tokens() -> None:
    subject = tokenizer(tokenizers.byte_level)
    assert [subject.token(i) for i in subject.encode("a<|im_end|>")] == ["a", "<|im_end|>"]


def test_a_run_of_spaces_is_no_control_token() -> None:
    subject = tokenizer(tokenizers.byte_level)
    assert "    " not in subject.control_tokens.values()
    text = "a    </s>"
    plain = subject.encode(text, parse_control_tokens=False)
    assert subject.token(plain[1]) == "    "


def test_the_unknown_token_is_not_mistaken_for_its_spelling() -> None:
    subject = tokenizer(tokenizers.word_piece)
    assert subject.control_spans("cat 東 [SEP] [UNK]") == [(6, 11), (12, 17)]
    assert subject.encode("cat 東", parse_control_tokens=False) == subject.encode("cat 東")


def test_spellings_that_are_normalised_are_found() -> None:
    raw = RawTokenizer.from_str(tokenizers.word_piece().decode())
    raw.add_tokens([AddedToken("cat!", normalized=True)])
    subject = Tokenizer(raw.to_str().encode())
    assert subject.control_spans("a CAT! b") == [(2, 6)]
    plain = subject.encode("a CAT! b", parse_control_tokens=False)
    assert control_ids(subject) & set(plain) == {2, 3}  # [CLS] and [SEP] of its own


def test_spans_leave_out_whitespace_that_a_token_takes_in() -> None:
    raw = RawTokenizer.from_str(tokenizers.byte_level().decode())
    raw.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    subject = Tokenizer(raw.to_str().encode())
    assert subject.control_spans("a  <mask>  b") == [(3, 9)]
    plain = subject.encode("a  <mask>  b", parse_control_tokens=False)
    assert subject.decode(plain) == "a  <mask>  b"


def test_ids_outside_the_vocabulary_are_refused() -> None:
    subject = tokenizer(tokenizers.words)
    for bad in (-1, 4):
        with pytest.raises(InvalidInput, match=rf"ids\[1\] is {bad}; .* below 4"):
            subject.decode([0, bad])
        with pytest.raises(InvalidInput):
            subject.token(bad)


def test_the_model_may_have_ids_that_the_tokenizer_has_not() -> None:
    subject = Tokenizer(tokenizers.words(), vocabulary_size=10)
    assert subject.vocabulary_size == 10
    assert subject.token(7) == ""
    assert subject.decode([1, 7, 2]) == "one two"


def test_padding_and_truncation_of_the_file_are_off() -> None:
    description = json.loads(tokenizers.byte_level())
    description["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    subject = Tokenizer(json.dumps(description).encode())
    assert len(subject.encode("abcdef")) == 6


# TOK-02
@pytest.mark.parametrize("calls", [300, pytest.param(2000, marks=pytest.mark.full)])
def test_many_threads_count_alike(minilm: Tokenizer, calls: int) -> None:
    others = tokenizer(tokenizers.byte_level)
    texts = [f"{'cat ' * count}dog" for count in range(1, 40)]
    wanted = [(len(minilm.encode(text)), len(others.encode(text))) for text in texts]

    def wrong(start: int) -> int:
        mistakes = 0
        for call in range(calls):
            index = (start * 7 + call) % len(texts)
            limit = 5 + call % 30
            ids = minilm.truncate(minilm.encode(texts[index]), limit if call % 2 else 512)
            expected = min(wanted[index][0], limit) if call % 2 else wanted[index][0]
            mistakes += len(ids) != expected
            mistakes += len(others.encode(texts[index])) != wanted[index][1]
        return mistakes

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(wrong, range(8))) == 0


def test_long_texts_do_not_hold_up_other_threads() -> None:
    subject = tokenizer(tokenizers.byte_level)
    longest, last = 0.0, time.perf_counter()
    encoding = Thread(target=subject.encode, args=("alpha beta " * 30_000,))
    began = last
    encoding.start()
    while encoding.is_alive():
        longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
    assert longest < (last - began) / 2
