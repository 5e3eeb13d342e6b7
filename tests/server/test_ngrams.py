"""N-grams against a search of the whole text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.ngrams import Ngrams

texts = st.lists(st.integers(0, 3), max_size=14)


def searched(size: int, text: list[int]) -> set[int]:
    """The tokens that would repeat an n-gram, by trying each."""
    runs = {tuple(text[start : start + size]) for start in range(len(text) - size + 1)}
    return {token for token in range(4) if tuple([*text, token][-size:]) in runs}


@given(st.integers(1, 5), texts, texts)
def test_what_would_repeat_is_what_a_search_finds(
    size: int, beginning: list[int], rest: list[int]
) -> None:
    ngrams, text = Ngrams(size, beginning), list(beginning)
    for token in rest:
        assert set(ngrams.repeating) == searched(size, text)
        ngrams.add(token)
        text.append(token)
    assert set(ngrams.repeating) == searched(size, text)


def test_forks_go_on_apart() -> None:
    one = Ngrams(2, [1, 2, 1])
    two = one.fork()
    one.add(3)
    one.add(1)
    assert sorted(one.repeating) == [2, 3]
    assert two.repeating == (2,)
