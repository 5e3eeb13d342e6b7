"""Pairs of spelling and phones as ids, and batches of them with little padding.

Shapes: `B` pairs, `K` letters, `S` phones.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from examples.g2p.dictionary import Entry
from examples.g2p.vocabulary import END_ID, START_ID, phone_tokenizer, spelling_tokenizer

IGNORED = -100  # a label where there is no phone


@dataclass(frozen=True)
class Pair:
    """One spelling and one pronunciation of it, both with their start and end."""

    source: tuple[int, ...]
    target: tuple[int, ...]


SILENCE = Pair((START_ID, END_ID), (START_ID, END_ID))  # what has no letters has no phones


@dataclass(frozen=True)
class Batch:
    """Pairs of similar lengths, padded on the right.

    Attributes:
        sources: int64 `[B, K]`.
        source_lengths: int64 `[B]`.
        targets: int64 `[B, S]`, from the start on.
        labels: int64 `[B, S]`, the phone after each, at last the end; `IGNORED` in the padding.
    """

    sources: Tensor
    source_lengths: Tensor
    targets: Tensor
    labels: Tensor

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Batch:
        return cls(
            sources=padded([pair.source for pair in pairs], END_ID),
            source_lengths=torch.tensor([len(pair.source) for pair in pairs]),
            targets=padded([pair.target[:-1] for pair in pairs], END_ID),
            labels=padded([pair.target[1:] for pair in pairs], IGNORED),
        )


def pairs(entries: Iterable[Entry]) -> list[Pair]:
    """Each pronunciation of each entry with its spelling."""
    spoken = [(entry.word, phones) for entry in entries for phones in entry.pronunciations]
    spellings = spelling_tokenizer().encode_batch([word for word, _ in spoken])
    phones = phone_tokenizer().encode_batch([" ".join(phones) for _, phones in spoken])
    return [
        Pair(tuple(source.ids), (START_ID, *target.ids, END_ID))
        for source, target in zip(spellings, phones, strict=True)
    ]


def shuffled_batches(pairs: Sequence[Pair], size: int, seed: str) -> Iterator[Batch]:
    """All pairs, `size` at a time, in an order that the seed gives.

    Pairs of one length come together in ever new company; batches come in any order.
    """
    generator = random.Random(seed)
    order = generator.sample(pairs, len(pairs))
    order.sort(key=lambda pair: (len(pair.source), len(pair.target)))
    starts = list(range(0, len(order), size))
    generator.shuffle(starts)
    return (Batch.of(order[start : start + size]) for start in starts)


def padded(rows: Sequence[Sequence[int]], filling: int) -> Tensor:
    """`[B, longest]` int64."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[filling] * (longest - len(row))] for row in rows])
