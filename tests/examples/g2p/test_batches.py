"""Pairs and batches."""

from __future__ import annotations

from collections import Counter

import torch

from examples.g2p.batches import IGNORED, Batch, Pair, pairs, shuffled_batches
from examples.g2p.dictionary import Entry
from examples.g2p.vocabulary import END_ID, START_ID, phone_tokenizer, spelling_tokenizer


def test_each_pronunciation_is_a_pair() -> None:
    entry = Entry("a", (("AH0",), ("EY1",)))
    phones = phone_tokenizer().encode("AH0 EY1").ids
    source = tuple(spelling_tokenizer().encode("a").ids)
    assert pairs([entry]) == [Pair(source, (START_ID, phone, END_ID)) for phone in phones]


def test_labels_are_the_phones_one_further_on() -> None:
    batch = Batch.of([Pair((0, 5, 1), (0, 7, 8, 1)), Pair((0, 5, 6, 1), (0, 9, 1))])
    assert batch.sources.tolist() == [[0, 5, 1, END_ID], [0, 5, 6, 1]]
    assert batch.source_lengths.tolist() == [3, 4]
    assert batch.targets.tolist() == [[0, 7, 8], [0, 9, END_ID]]
    assert batch.labels.tolist() == [[7, 8, 1], [9, 1, IGNORED]]


def test_an_epoch_holds_every_pair_once_in_an_order_of_its_own() -> None:
    every = [Pair((0, *range(2, 2 + i % 9), 1), (0, 3 + i, 1)) for i in range(500)]
    first, again, other = (
        [batch.targets[:, 1].tolist() for batch in shuffled_batches(every, 64, seed)]
        for seed in ("1 0", "1 0", "1 1")
    )
    expected = Counter(3 + i for i in range(500))
    assert Counter(target for batch in first for target in batch) == expected
    assert Counter(target for batch in other for target in batch) == expected
    assert first == again
    assert not {frozenset(batch) for batch in first} & {frozenset(batch) for batch in other}


def test_little_is_padding() -> None:
    every = [Pair((0, *range(2, 2 + i % 9), 1), (0, 3, 1)) for i in range(1000)]
    batches = list(shuffled_batches(every, 64, "1 0"))
    cells = sum(batch.sources.numel() for batch in batches)
    assert sum(int(batch.source_lengths.sum()) for batch in batches) / cells > 0.95
    assert all(batch.sources.dtype == torch.int64 for batch in batches)
