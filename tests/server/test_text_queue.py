"""Which texts share a batch: single decisions, then fairness over random traffic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.text_queue import QueuedText, TextQueue

TRAFFIC = st.lists(
    st.tuples(st.lists(st.integers(1, 120), min_size=1, max_size=6), st.integers(0, 2)), max_size=15
)


def lengths(batch: list[QueuedText]) -> list[int]:
    return [text.length for text in batch]


def test_a_batch_holds_what_fits_the_budget_counted_padded() -> None:
    queue = TextQueue(max_batch_tokens=100)
    queue.add("a", [20] * 7)
    assert lengths(queue.take()) == [20] * 5
    assert lengths(queue.take()) == [20] * 2
    assert queue.take() == []


def test_texts_of_a_call_go_by_length() -> None:
    queue = TextQueue(max_batch_tokens=60)
    queue.add("a", [50, 3, 40, 5])
    assert lengths(queue.take()) == [3, 5]
    assert lengths(queue.take()) == [40]
    assert lengths(queue.take()) == [50]


def test_a_text_beyond_the_budget_is_a_batch_of_its_own() -> None:
    queue = TextQueue(max_batch_tokens=30)
    queue.add("a", [100])
    queue.add("b", [90])
    assert lengths(queue.take()) == [100]


def test_texts_of_similar_length_overtake_once() -> None:
    queue = TextQueue(max_batch_tokens=256)
    for call, length in enumerate([10, 100, 12, 110, 11]):
        queue.add(call, [length])
    assert lengths(queue.take()) == [10, 12, 11]
    queue.add(5, [10])
    queue.add(6, [105])
    assert lengths(queue.take()) == [100, 110], "105 fits neither the budget nor the barrier"
    assert lengths(queue.take()) == [10]
    assert lengths(queue.take()) == [105]


def test_removing_a_call_leaves_the_others() -> None:
    queue = TextQueue(max_batch_tokens=100)
    queue.add("a", [10, 20])
    queue.add("b", [15])
    assert queue.remove("a") == 2
    assert queue.remove("a") == 0
    assert [text.call for text in queue.take()] == ["b"]


def test_enough_tokens_fill_a_batch() -> None:
    queue = TextQueue(max_batch_tokens=100)
    queue.add("a", [60])
    assert not queue.fills_a_batch
    queue.add("b", [40])
    assert queue.fills_a_batch
    queue.take()
    assert not queue.fills_a_batch


@given(TRAFFIC)
def test_every_text_is_taken_once_and_overtaken_by_one_batch_at_most(
    traffic: list[tuple[list[int], int]],
) -> None:
    queue = TextQueue(max_batch_tokens=128)
    waiting: dict[tuple[int, int], int] = {}  # text -> batches that overtook it
    order: list[tuple[int, int]] = []

    def take() -> None:
        head = queue.head
        batch = queue.take()
        taken = {(int(str(text.call)), text.index) for text in batch}
        assert (head is None) == (not batch)
        if head is None:
            return
        assert batch[0] is head
        longest = max(text.length for text in batch)
        assert len(batch) == 1 or len(batch) * longest <= 128
        last = max(order.index(text) for text in taken)
        for text in taken:
            assert waiting.pop(text) <= 1
        for text in waiting:
            waiting[text] += order.index(text) < last
            assert waiting[text] <= 1

    for call, (texts, batches) in enumerate(traffic):
        queue.add(call, texts)
        by_length = sorted(range(len(texts)), key=texts.__getitem__)
        order += [(call, index) for index in by_length]
        waiting |= {(call, index): 0 for index in by_length}
        for _ in range(batches):
            take()
    while len(queue):
        take()
    assert not waiting
