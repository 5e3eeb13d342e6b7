"""Which words are held out, and who has relatives."""

from __future__ import annotations

import pytest

from examples.g2p.dictionary import Entry
from examples.g2p.split import split, with_relatives

ENTRIES = [Entry(f"word{number}", (("W",),)) for number in range(20_000)]


def entries(*words: str) -> list[Entry]:
    return [Entry(word, (("W",),)) for word in words]


def test_every_word_is_in_one_part() -> None:
    parts = split(ENTRIES)
    together = [*parts.training, *parts.validation, *parts.test]
    assert sorted(entry.word for entry in together) == sorted(entry.word for entry in ENTRIES)
    assert len(parts.test) == pytest.approx(1000, rel=0.1)
    assert len(parts.validation) == pytest.approx(200, rel=0.2)


def test_a_word_stays_in_its_part_whatever_else_there_is() -> None:
    every, some = split(ENTRIES), split(ENTRIES[::3])
    assert set(some.training) <= set(every.training)
    assert set(some.test) <= set(every.test)


@pytest.mark.parametrize(
    ("word", "known", "related"),
    [
        ("abandoned", "abandon", True),
        ("abandon", "abandoned", True),
        ("baking", "bakes", True),
        ("zyuganov's", "zyuganov", True),
        ("agile", "agility", True),
        ("agassiz", "agape", False),
        ("as", "a's", False),  # too short for a stem
        ("nation", "native", False),
    ],
)
def test_relatives_share_a_stem(word: str, known: str, related: bool) -> None:
    assert with_relatives(entries(word), entries(known, "unrelated")) == [related]


def test_answers_are_in_the_order_of_the_words() -> None:
    words = entries("cats", "dogs", "birds")
    assert with_relatives(words, entries("bird", "cat")) == [True, False, True]
