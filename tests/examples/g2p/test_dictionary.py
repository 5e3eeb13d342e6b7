"""The dictionary as the package carries it."""

from __future__ import annotations

import pytest

from examples.g2p.dictionary import Entry, read_dictionary, without_stress
from examples.g2p.vocabulary import LETTERS, PHONES


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return read_dictionary()


def test_every_entry_is_spelled_and_said_with_what_the_model_knows(entries: list[Entry]) -> None:
    assert len(entries) == 126_052
    assert {letter for entry in entries for letter in entry.word} == set(LETTERS)
    said = {phone for entry in entries for phones in entry.pronunciations for phone in phones}
    assert said == set(PHONES)


def test_comments_and_numbers_of_alternates_are_not_part_of_an_entry(entries: list[Entry]) -> None:
    said = {entry.word: entry.pronunciations for entry in entries}
    assert said["a"] == (("AH0",), ("EY1",))
    assert said["aalborg"] == (  # the first is followed by a comment
        ("AO1", "L", "B", "AO0", "R", "G"),
        ("AA1", "L", "B", "AO0", "R", "G"),
    )
    assert not [word for word in said if "(" in word]


def test_stress_is_of_vowels_alone() -> None:
    assert without_stress(("HH", "AH0", "L", "OW1", "Z")) == ("HH", "AH", "L", "OW", "Z")
