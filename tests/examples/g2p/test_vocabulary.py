"""The tokenizers of letters and phones, as a server reads them too."""

from __future__ import annotations

import pytest

from examples.g2p.vocabulary import (
    END_ID,
    LETTERS,
    PHONES,
    START_ID,
    phone_tokenizer,
    spelling_tokenizer,
)
from server.detokenizer import Detokenizer
from server.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("word", "word"),
        ("O'Brien", "o'brien"),
        ("O\u2019Brien", "o'brien"),
        ("Brontë", "bronte"),
        ("Zoe\u0308", "zoe"),  # the same with a combining mark
        ("ﬁsh", "fish"),
        ("U.S.-made", "u.s.-made"),
        ("3 new\nwords!", "newwords"),
        ("日本 42", ""),
        ("", ""),
    ],
)
def test_a_token_is_a_letter(text: str, letters: str) -> None:
    assert spelling_tokenizer().encode(text).tokens == ["<s>", *letters, "</s>"]


def test_letters_and_phones_have_ids_of_their_own() -> None:
    assert len(set(spelling_tokenizer().encode(LETTERS).ids)) == len(LETTERS) + 2
    assert len(set(phone_tokenizer().encode(" ".join(PHONES)).ids)) == len(PHONES) == 69


def test_phones_come_back_as_they_were_said_one_by_one() -> None:
    tokenizer = Tokenizer(phone_tokenizer().to_str().encode())
    ids = tokenizer.encode("W UH1 S T ER0")
    assert not {START_ID, END_ID} & set(ids)
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(token_id) for token_id in (*ids, END_ID)]
    assert pieces == ["W", " UH1", " S", " T", " ER0", ""]
    assert detokenizer.finish() == ""


def test_the_server_takes_what_spells_a_control_token_for_text() -> None:
    tokenizer = Tokenizer(spelling_tokenizer().to_str().encode())
    ids = tokenizer.encode("<s>", parse_control_tokens=False)
    assert ids == spelling_tokenizer().encode("s").ids


def test_a_phone_that_does_not_exist_is_unknown() -> None:
    tokenizer = phone_tokenizer()
    unknown = tokenizer.token_to_id("<unk>")
    assert tokenizer.encode("B ZZ9").ids == [tokenizer.token_to_id("B"), unknown]
