from __future__ import annotations

from statistics import median

from bench.texts import real_texts


def test_lengths_are_those_that_people_send() -> None:
    words = [len(text.split()) for text in real_texts(600)]
    assert 18 <= median(words) <= 22
    assert 1 <= min(words) <= 5
    assert max(words) == 150
    assert 0.1 < sum(count > 44 for count in words) / len(words) < 0.22


def test_a_seed_gives_the_same_texts_again() -> None:
    assert real_texts(20, seed=1) == real_texts(20, seed=1)
    assert real_texts(20, seed=1) != real_texts(20, seed=2)
