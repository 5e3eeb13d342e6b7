"""Constraints beside the oracle's decoding rules, and beside the requests' own minimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from export.manifest import DecodingRules
from model import decoding_rules as oracle
from server.constraints import Constraints
from server.errors import InvalidInput
from server.request import GenerationRequest, Sampling, Stopping

VOCABULARY = 12
ENDS = (1, 4)
ids = st.integers(0, VOCABULARY - 1)
optional_ids = st.none() | ids

all_rules = st.builds(
    DecodingRules,
    first_id=optional_ids,
    last_id=optional_ids,
    forbidden_ids=st.lists(ids, max_size=3, unique=True).map(sorted).map(tuple),
    ngram_size=st.integers(0, 4),
    min_new_tokens=st.integers(0, 4),
    renormalised=st.booleans(),
)


def constraints(
    rules: DecodingRules,
    prompt: Sequence[int] = (0,),
    *,
    stopping: Stopping = Stopping(max_new_tokens=6, eos_ids=ENDS),  # noqa: B008 - frozen
    room: int = 100,
) -> Constraints | None:
    request = GenerationRequest(tuple(prompt), Sampling(), stopping, rules=rules)
    return Constraints.of(request, VOCABULARY, room)


@given(
    all_rules,
    st.lists(ids, min_size=1, max_size=3),
    st.lists(ids, max_size=6),
    st.integers(1, 8),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=300, deadline=None)
def test_every_step_is_the_oracles(
    rules: DecodingRules, prompt: list[int], generated: list[int], room: int, seed: int
) -> None:
    scores = np.random.default_rng(seed).standard_normal(VOCABULARY).astype(np.float32)
    judge = oracle.DecodingRules(**asdict(rules))
    most = min(6, room)
    followed, target = constraints(rules, prompt, room=room), list(prompt)
    for new, token in enumerate(generated[:most]):
        wanted = judge.apply(
            torch.from_numpy(scores), target, new, room=most - new, ends=ENDS
        ).numpy()
        assume(np.isfinite(wanted).any())
        got = scores.copy()
        if followed is not None:
            followed.apply(got)
            followed.count(token)
        np.testing.assert_array_equal(got, wanted)
        target.append(token)


@given(all_rules, st.lists(ids, max_size=5))
def test_what_is_allowed_is_what_keeps_a_score(rules: DecodingRules, generated: list[int]) -> None:
    followed = constraints(rules)
    assume(followed is not None)
    assert followed is not None
    for token in generated:
        followed.count(token)
    assume(len(followed.forbidden_ids) < VOCABULARY)
    scores = np.ones(VOCABULARY, np.float32)
    followed.apply(scores)
    assert [followed.allow(token) for token in range(VOCABULARY)] == np.isfinite(scores).tolist()
    assert followed.free == bool((scores == 1).all())


def test_nothing_is_followed_where_nothing_is_demanded() -> None:
    assert constraints(DecodingRules()) is None
    assert constraints(DecodingRules(renormalised=True)) is None


def test_rules_that_leave_no_token_are_not_followed() -> None:
    everything = constraints(DecodingRules(ngram_size=1), range(VOCABULARY))
    assert everything is not None
    scores = np.ones(VOCABULARY, np.float32)
    everything.apply(scores)
    assert (scores == 1).all()


def test_a_request_withholds_its_stop_tokens_too() -> None:
    stopping = Stopping(6, min_new_tokens=2, eos_ids=ENDS, stop_token_ids=(7, VOCABULARY + 3))
    followed = constraints(DecodingRules(min_new_tokens=3), stopping=stopping)
    assert followed is not None
    for forbidden in ({1, 4, 7}, {1, 4, 7}, {1, 4}, set()):
        assert followed.forbidden_ids == forbidden
        followed.count(5)


def test_a_request_may_not_withhold_everything() -> None:
    stopping = Stopping(6, min_new_tokens=1, stop_token_ids=tuple(range(VOCABULARY)))
    with pytest.raises(InvalidInput, match=r"stopping\.stop_token_ids"):
        constraints(DecodingRules(), stopping=stopping)
    assert constraints(DecodingRules(), stopping=replace(stopping, min_new_tokens=0)) is None


def test_forks_go_on_apart() -> None:
    one = constraints(DecodingRules(last_id=3, ngram_size=2), [0, 5])
    assert one is not None
    two = one.fork()
    for token in (6, 5, 7, 5, 8):
        one.count(token)
    two.count(0)
    assert one.forced_id == 3
    assert two.forced_id is None
    assert two.forbidden_ids == {5}
