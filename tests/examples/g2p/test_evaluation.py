"""The groups of an evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from examples.g2p.dictionary import Entry, Pronunciation
from examples.g2p.evaluation import evaluate
from examples.g2p.split import Split

CAT, CATS, DOG = (
    Entry("cat", (("K", "AE1", "T"),)),
    Entry("cats", (("K", "AE1", "T", "S"),)),
    Entry("dog", (("D", "AO1", "G"),)),
)


def pronounce(words: Sequence[str]) -> list[Pronunciation]:
    """Says a dog as if it were stressed twice, and cats without their end."""
    known: dict[str, Pronunciation] = {"cats": ("K", "AE1", "T"), "dog": ("D", "AO2", "G")}
    return [known[word] for word in words]


def test_words_with_and_without_relatives_are_told_apart() -> None:
    result = evaluate(pronounce, Split((CAT,), (), (CATS, DOG)))
    assert result.rows() == [
        ("all", "2", "14.29%", "50.00%", "28.57%", "100.00%"),
        ("with relatives", "1", "25.00%", "100.00%", "25.00%", "100.00%"),
        ("without relatives", "1", "0.00%", "0.00%", "33.33%", "100.00%"),
    ]
    assert result.to_json()["with_relatives"]["without_stress"] == {"phones": 0.25, "words": 1.0}


def test_a_group_may_be_empty() -> None:
    result = evaluate(pronounce, Split((CAT,), (), (CATS,)))
    assert result.without_relatives is None
    assert len(result.rows()) == 2
