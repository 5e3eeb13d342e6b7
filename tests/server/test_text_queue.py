"""Which texts share a batch: single decisions, then fairness over random traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from server.text_queue import QueuedText, TextQueue

TRAFFIC = st.lists(
    st.tuples(st.lists(st.integers(1, 120), min_size=1, max_size=6), st.integers(0, 2)), max_size=15
)


def lengths(batch: list[QueuedText]) -> list[int]:
    return [text.length for text in batch]


def calls(batch: list[QueuedText]) -> list[Hashable]:
    return [text.call for text in batch]


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
    assert calls(queue.take()) == ["b"]


def test_enough_tokens_fill_a_batch() -> None:
    queue = TextQueue(max_batch_tokens=100)
    queue.add("a", [60])
    assert not queue.fills_a_batch
    queue.add("b", [40])
    assert queue.fills_a_batch
    queue.take()
    assert not queue.fills_a_batch


def test_a_small_call_waits_for_one_batch_of_a_large_one() -> None:
    queue = TextQueue(max_batch_tokens=100)
    queue.add("large", [50] * 10)
    queue.add("early", [3])
    assert calls(queue.take()) == ["large", "large"]
    queue.add("late", [4])
    assert calls(queue.take()) == ["early", "late"]
    assert calls(queue.take()) == ["large", "large"]


def test_small_calls_that_keep_coming_leave_a_large_one_every_other_batch() -> None:
    queue = TextQueue(max_batch_tokens=100)
    queue.add("large", [50] * 8)
    heads = []
    for index in range(8):
        queue.add(index, [3])
        heads.append(queue.take()[0].call)
    assert heads[::2] == ["large"] * 4
    assert len(queue) == 0, "two small ones share each of the others"


@given(st.lists(st.tuples(st.integers(1, 120), st.sampled_from([0, 0, 0, 1])), max_size=40))
def test_every_text_is_overtaken_by_one_batch_at_most(traffic: list[tuple[int, int]]) -> None:
    """Of calls of one text each, so that the order is that of their arrival."""
    queue = TextQueue(max_batch_tokens=128)
    waiting: dict[Hashable, int] = {}  # calls in order -> batches that overtook them

    def take() -> None:
        taken = calls(take_checked(queue))
        for call in taken:
            assert waiting[call] <= 1
        order = list(waiting)
        last = max((order.index(call) for call in taken), default=0)
        for call in order[:last]:
            waiting[call] += 1
        for call in taken:
            del waiting[call]

    for call, (length, batches) in enumerate(traffic):
        queue.add(call, [length])
        waiting[call] = 0
        for _ in range(batches):
            take()
    while waiting:
        take()


@given(TRAFFIC)
def test_every_text_is_taken_once_and_every_call_has_its_turn(
    traffic: list[tuple[list[int], int]],
) -> None:
    queue = TextQueue(max_batch_tokens=128)
    waiting: set[tuple[Hashable, int]] = set()
    taken: Counter[Hashable] = Counter()  # of each call, texts
    headed: dict[Hashable, Counter[Hashable]] = {}  # since a call came, batches by their first call

    def take() -> None:
        batch = take_checked(queue)
        taken.update(calls(batch))
        for text in batch:
            waiting.remove((text.call, text.index))
        for call in {call for call, _ in waiting}:
            headed[call].update(calls(batch[:1]))
            others = [count for other, count in headed[call].items() if other != call]
            assert max(others, default=0) <= taken[call] + 2

    for call, (texts, batches) in enumerate(traffic):
        queue.add(call, texts)
        waiting |= {(call, index) for index in range(len(texts))}
        headed[call] = Counter()
        for _ in range(batches):
            take()
    while waiting:
        take()
    assert len(queue) == 0


def take_checked(queue: TextQueue) -> list[QueuedText]:
    """The next batch: it begins with the head and keeps within the budget of 128 cells."""
    head, batch = queue.head, queue.take()
    assert batch[:1] == ([] if head is None else [head])
    assert len(batch) < 2 or len(batch) * max(lengths(batch)) <= 128
    return batch
