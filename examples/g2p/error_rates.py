"""How far answers are from the dictionary: phone error rate and word error rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from examples.g2p.dictionary import Entry, Pronunciation, without_stress


@dataclass(frozen=True)
class ErrorRates:
    """Errors of many answers, as shares.

    Attributes:
        phones: phones to insert, delete or replace, over the phones of the nearest pronunciations.
        words: answers that are none of the word's pronunciations, over all.
    """

    phones: float
    words: float


def error_rates(
    answers: Sequence[Pronunciation], entries: Sequence[Entry], *, stress: bool
) -> ErrorRates:
    """Compares each answer with the nearest pronunciation of its entry; at least one entry.

    Args:
        stress: whether a vowel with the wrong stress is wrong.
    """
    edits = length = wrong = 0
    for answer, entry in zip(answers, entries, strict=True):
        right = entry.pronunciations
        if not stress:
            answer, right = without_stress(answer), tuple(map(without_stress, right))
        distance, nearest = min((edit_distance(answer, phones), len(phones)) for phones in right)
        edits += distance
        length += nearest
        wrong += distance > 0
    return ErrorRates(edits / length, wrong / len(entries))


def edit_distance(first: Pronunciation, second: Pronunciation) -> int:
    """The fewest phones to insert, delete or replace (Levenshtein 1966)."""
    row = list(range(len(second) + 1))  # of the first i phones, to each beginning of the second
    for i, phone in enumerate(first, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(second, start=1):
            replaced = diagonal + (phone != other)
            diagonal = row[j]
            row[j] = min(replaced, row[j] + 1, row[j - 1] + 1)
    return row[-1]
