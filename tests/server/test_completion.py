"""Completions: the three equalities, ends, and truthful reasons."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.completion import Completion, Step
from server.request import FinishReason, Stopping
from server.tokenizer import Tokenizer
from tests.server import tokenizers

SCRIPT = " alpha beta gamma"
EMOJI = ["😀", "👨‍👩‍👧‍👦", "한국어", "é è ü", "e\u0301a", "\ufffd", "🇩🇪🇫🇷"]


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer(tokenizers.byte_level())


def token_id(spelling: str) -> int:
    (only,) = tokenizer().encode(spelling)
    return only


def run(ids: list[int], stopping: Stopping, room: int = 1000) -> list[Step]:
    """The steps up to the end of the completion."""
    completion = Completion(tokenizer(), stopping, room)
    steps: list[Step] = []
    for each in ids:
        steps.append(completion.accept(each))
        if steps[-1].reason is not None:
            break
    assert completion.count == len(steps)
    return steps


def text_of(steps: list[Step]) -> str:
    return "".join(step.text for step in steps)


def stopping(limit: int, *stop: str, minimum: int = 0, include: bool = False) -> Stopping:
    ends = (token_id("</s>"), token_id("<|im_end|>"))
    return Stopping(limit, minimum, stop, (token_id("z"),), ends, include)


# STR-01


@pytest.mark.parametrize("text", EMOJI)
def test_cut_anywhere_the_text_is_one_decode_of_all_ids(text: str) -> None:
    ids = tokenizers.byte_ids(f"a{text}b".encode())
    for cut in range(1, len(ids) + 1):
        steps = run(ids, stopping(cut))
        assert len(steps) == cut
        assert steps[-1].reason is FinishReason.LENGTH
        assert text_of(steps) == tokenizer().decode(ids[:cut])
        assert all("\ufffd" not in step.text for step in steps[:-1]) or "\ufffd" in text


@given(ids=st.lists(st.integers(0, 260), min_size=1, max_size=60), ended=st.booleans())
@settings(max_examples=200, deadline=None)
def test_random_ids_are_one_decode(ids: list[int], ended: bool) -> None:
    end = token_id("</s>")
    steps = run([*ids, end], Stopping(len(ids) + ended, eos_ids=(end,)))
    used = [*ids, end][: len(steps)]
    assert text_of(steps) == tokenizer().decode(used)
    assert steps[-1].reason is (FinishReason.EOS if used[-1] == end else FinishReason.LENGTH)


# STR-03


@pytest.mark.parametrize(
    ("stop", "text", "stop_sequence"),
    [
        (("ta gam",), " alpha be", "ta gam"),
        (("alpha beta gamma delta",), SCRIPT, ""),
        (("ga", "gamma"), " alpha beta ", "ga"),
        (("eta", "beta"), " alpha ", "beta"),
    ],
)
@pytest.mark.parametrize("a_byte_a_token", [True, False])
def test_stop_strings(
    stop: tuple[str, ...], text: str, stop_sequence: str, a_byte_a_token: bool
) -> None:
    ids = tokenizers.byte_ids(SCRIPT.encode()) if a_byte_a_token else tokenizer().encode(SCRIPT)
    steps = run([*ids, token_id("</s>")], stopping(100, *stop))
    assert text_of(steps) == text
    assert steps[-1].stop_sequence == stop_sequence
    assert steps[-1].reason is (FinishReason.STOP if stop_sequence else FinishReason.EOS)


def test_a_stop_string_inside_an_emoji() -> None:
    ids = tokenizers.byte_ids("a👨\u200d👩\u200d👧b".encode())
    steps = run(ids, stopping(100, "\u200d👩"))
    assert text_of(steps) == "a👨"
    assert steps[-1].reason is FinishReason.STOP


def test_the_stop_string_is_included_where_asked_for() -> None:
    steps = run(tokenizer().encode(SCRIPT), stopping(100, "ta", include=True))
    assert text_of(steps) == " alpha beta"


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.EOS, FinishReason.STOP])
def test_an_unfinished_stop_string_is_delivered_at_the_end(reason: FinishReason) -> None:
    ids = tokenizers.byte_ids(b"ab")
    last = {FinishReason.EOS: "</s>", FinishReason.STOP: "z", FinishReason.LENGTH: "c"}[reason]
    steps = run([*ids, token_id(last)], stopping(3, "abcd"))
    assert steps[-1].reason is reason
    assert text_of(steps) == ("abc" if reason is FinishReason.LENGTH else "ab")


# GEN-05


@pytest.mark.parametrize("end", ["</s>", "<|im_end|>"])
@pytest.mark.parametrize("difference", [-1, 0, 1])
def test_any_end_token_ends_without_text(end: str, difference: int) -> None:
    ids = [*tokenizers.byte_ids(b"abc"), token_id(end)]
    steps = run(ids, stopping(len(ids) + difference))
    assert text_of(steps) == "abc"
    assert len(steps) == min(len(ids), len(ids) + difference)
    # An end token that is also the last one allowed is still an end token.
    assert steps[-1].reason is (FinishReason.LENGTH if difference < 0 else FinishReason.EOS)


def test_a_stop_token_ends_without_text() -> None:
    steps = run(tokenizers.byte_ids(b"abzc"), stopping(100))
    assert (text_of(steps), steps[-1].reason) == ("ab", FinishReason.STOP)
    assert steps[-1].stop_sequence == ""


def test_a_stop_string_that_the_last_allowed_token_completes_is_a_stop() -> None:
    steps = run(tokenizers.byte_ids(b"abc"), stopping(3, "bc"))
    assert (text_of(steps), steps[-1].reason) == ("a", FinishReason.STOP)


def test_ends_that_are_ignored_are_tokens_like_others() -> None:
    ids = [*tokenizers.byte_ids(b"a"), token_id("</s>"), *tokenizers.byte_ids(b"b")]
    steps = run(ids, Stopping(max_new_tokens=3))
    assert (text_of(steps), steps[-1].reason) == ("ab", FinishReason.LENGTH)


def test_the_room_that_is_left_is_a_limit() -> None:
    steps = run(tokenizers.byte_ids(b"abcdef"), stopping(2**31 - 1), room=4)
    assert (text_of(steps), steps[-1].reason) == ("abcd", FinishReason.LENGTH)


def test_stop_strings_wait_for_min_new_tokens() -> None:
    steps = run(tokenizers.byte_ids(b"abab"), stopping(100, "b", minimum=2))
    assert (text_of(steps), len(steps), steps[-1].reason) == ("aba", 4, FinishReason.STOP)


def test_the_limit_ends_before_min_new_tokens() -> None:
    steps = run(tokenizers.byte_ids(b"abab"), stopping(2, "b", minimum=5))
    assert (text_of(steps), steps[-1].reason) == ("ab", FinishReason.LENGTH)


@given(
    before=st.lists(st.integers(0, 260), max_size=12),
    after=st.lists(st.integers(0, 260), max_size=12),
    other=st.lists(st.integers(0, 260), max_size=12),
)
@settings(max_examples=100, deadline=None)
def test_forks_go_on_apart(before: list[int], after: list[int], other: list[int]) -> None:
    """Whatever one says, the other says what it would have said alone."""
    rules = stopping(1000, "alpha", "\xe9", minimum=2)
    one = Completion(tokenizer(), rules, 1000)
    shared = [one.accept(each) for each in before]
    two = one.fork()
    mixed = [(one.accept(a), two.accept(b)) for a, b in zip(after, other, strict=False)]
    alone = Completion(tokenizer(), rules, 1000)
    assert [alone.accept(each) for each in before] == shared
    assert [alone.accept(a) for a, _ in zip(after, other, strict=False)] == [a for a, _ in mixed]
    assert two.count == one.count
