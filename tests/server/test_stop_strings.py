"""Stop strings: the earliest match, nothing of it sent, nothing else swallowed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.stop_strings import StopMatcher

pieces_of = st.lists(st.text("ab", max_size=4), max_size=12)
stops_of = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4)


def run(stops: list[str], pieces: list[str], include: bool = False) -> tuple[str, str | None]:
    """The text that is sent, and the stop string that ended it."""
    matcher = StopMatcher(stops, include)
    sent = ""
    for piece in pieces:
        text, stop = matcher.push(piece)
        sent += text
        if stop is not None:
            return sent, stop
    return sent + matcher.flush(), None


@given(stops=stops_of, pieces=pieces_of, include=st.booleans())
@settings(deadline=None)
def test_equals_searching_the_text_so_far(
    stops: list[str], pieces: list[str], include: bool
) -> None:
    text, found = "", []
    for piece in pieces:
        text += piece
        found = [(text.find(stop), len(stop), stop) for stop in stops if stop in text]
        if found:
            break
    if not found:
        assert run(stops, pieces, include) == (text, None)
        return
    start, length, stop = min(found)
    assert run(stops, pieces, include) == (text[: start + (length if include else 0)], stop)


@given(stops=stops_of, pieces=pieces_of)
@settings(deadline=None)
def test_holds_back_no_more_than_may_begin_a_stop_string(
    stops: list[str], pieces: list[str]
) -> None:
    matcher, text, sent = StopMatcher(stops, include_stop=False), "", ""
    for piece in pieces:
        text += piece
        part, stop = matcher.push(piece)
        sent += part
        if stop is not None:
            return
        held = text[len(sent) :]
        assert not held or any(each.startswith(held) for each in stops)
        longer = [text[cut:] for cut in range(len(sent))]
        assert not any(each.startswith(suffix) for each in stops for suffix in longer)


@pytest.mark.parametrize(
    ("stops", "text", "stop"),
    [
        (["ta gam"], " alpha be", "ta gam"),
        (["alpha beta gamma delta"], " alpha beta gamma", None),
        (["ga", "gamma"], " alpha beta ", "ga"),
        (["gamma", "ga"], " alpha beta ", "ga"),
        (["beta g", "pha beta ga"], " alpha ", "beta g"),
        (["a b", "ha b"], " alp", "ha b"),
        ([], " alpha beta gamma", None),
    ],
)
def test_script(stops: list[str], text: str, stop: str | None) -> None:
    characters = list(" alpha beta gamma")
    assert run(stops, characters) == (text, stop)


def test_of_matches_in_one_piece_the_earliest_counts() -> None:
    assert run(["gamma", "beta"], [" alpha beta gamma"]) == (" alpha ", "beta")


def test_a_stop_inside_an_emoji() -> None:
    assert run(["\u200d👩"], list("a👨\u200d👩\u200d👧b")) == ("a👨", "\u200d👩")


def test_an_unfinished_prefix_is_sent_when_it_cannot_go_on() -> None:
    matcher = StopMatcher(["abab!"], include_stop=False)
    sent = [matcher.push(character)[0] for character in "ababab?"]
    assert sent == ["", "", "", "", "ab", "", "abab?"]
