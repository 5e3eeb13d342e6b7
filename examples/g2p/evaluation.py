"""A model's error rates on the test words, with and without relatives in the training words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import compress
from typing import Any

from examples.g2p.dictionary import Entry, Pronunciation
from examples.g2p.error_rates import ErrorRates, error_rates
from examples.g2p.split import Split, with_relatives

Pronounce = Callable[[Sequence[str]], list[Pronunciation]]
COLUMNS = (
    *("test words", "number", "phone errors", "word errors"),
    *("phone errors with stress", "word errors with stress"),
)


@dataclass(frozen=True)
class Group:
    """The error rates of some of the words."""

    words: int
    without_stress: ErrorRates
    with_stress: ErrorRates


@dataclass(frozen=True)
class Evaluation:
    """Error rates of all test words, and of two groups of them, one of which may be empty.

    A word without relatives has to be read; the pronunciation of one with them can be put together
    from what was learned by heart, which flatters the figures of all.
    """

    all: Group
    with_relatives: Group | None
    without_relatives: Group | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def rows(self) -> list[tuple[str, ...]]:
        """A row of `COLUMNS` for each group."""
        groups = (
            ("all", self.all),
            ("with relatives", self.with_relatives),
            ("without relatives", self.without_relatives),
        )
        return [(name, *_cells(group)) for name, group in groups if group is not None]


def evaluate(pronounce: Pronounce, words: Split) -> Evaluation:
    """Has every test word pronounced, and compares with the dictionary."""
    return compare(pronounce([entry.word for entry in words.test]), words)


def compare(answers: Sequence[Pronunciation], words: Split) -> Evaluation:
    """Compares one answer for each test word with the dictionary; at least one word."""
    related = with_relatives(words.test, words.training)

    def group(chosen: Sequence[bool]) -> Group | None:
        return _group(list(compress(answers, chosen)), list(compress(words.test, chosen)))

    whole = group([True] * len(related))
    assert whole is not None
    return Evaluation(whole, group(related), group([not relative for relative in related]))


def _group(answers: Sequence[Pronunciation], entries: Sequence[Entry]) -> Group | None:
    if not entries:
        return None
    return Group(
        words=len(entries),
        without_stress=error_rates(answers, entries, stress=False),
        with_stress=error_rates(answers, entries, stress=True),
    )


def _cells(group: Group) -> tuple[str, ...]:
    rates = (group.without_stress, group.with_stress)
    shares = (share for rate in rates for share in (rate.phones, rate.words))
    return (f"{group.words:,}", *(f"{share:.2%}" for share in shares))
