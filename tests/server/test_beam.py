"""Beam search against transformers' own, on tiny random models; and where its slots go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from export.manifest import DecodingRules
from server.beam import BeamSearch
from server.request import NO_RULES, GenerationRequest, Sampling, Stopping
from server.sampler import SamplingRow
from tests.model.checkpoints.tiny_references import tiny_llama

VOCABULARY = 61


@dataclass(frozen=True)
class Tokens:
    """The plainest hypothesis."""

    ids: tuple[int, ...] = ()
    ended: bool = False


@dataclass(frozen=True)
class Rules:
    width: int
    length_penalty: float = 1.0
    ends: tuple[int, ...] = (3,)
    min_new_tokens: int = 0
    max_new_tokens: int = 12
    repetition_penalty: float = 1.0
    decoding: DecodingRules = NO_RULES


@cache
def model(temperature: float) -> Any:
    """A model whose next tokens are the surer the lower the temperature."""
    llama = tiny_llama(vocab_size=VOCABULARY, tie_word_embeddings=False)
    llama.lm_head.weight.data /= temperature
    return llama


def search(llama: Any, prompt: list[int], rules: Rules) -> list[tuple[float, tuple[int, ...]]]:
    """Searches with every prefix computed anew, without a cache."""
    sampling = Sampling(repetition_penalty=rules.repetition_penalty)
    stopping = Stopping(rules.max_new_tokens, rules.min_new_tokens, eos_ids=rules.ends)
    beams = BeamSearch(Tokens(), rules.width, rules.length_penalty, len(rules.ends))

    def extend(slot: int, token: int) -> Tokens:
        ids = (*beams.running[slot].ids, token)
        return Tokens(ids, token in rules.ends or len(ids) == rules.max_new_tokens)

    def added(slot: int, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        request = GenerationRequest(tuple(prompt), sampling, stopping, rules=rules.decoding)
        row = SamplingRow(request, 0, VOCABULARY, rules.max_new_tokens)
        for token in beams.running[slot].ids:
            row.accept(token)
        return row.beam_scores(logits)

    while not beams.done:
        ids = torch.tensor([[*prompt, *hypothesis.ids] for hypothesis in beams.running])
        with torch.no_grad():
            logits = llama(ids).logits[:, -1].numpy()
        scores = [added(slot, row) for slot, row in enumerate(logits)]
        beams.step(np.stack(scores), extend)
    return [(score, hypothesis.ids) for score, hypothesis in beams.finished]


def reference(llama: Any, prompt: list[int], rules: Rules) -> list[tuple[float, tuple[int, ...]]]:
    ids = torch.tensor([prompt])
    found = llama.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=rules.width,
        num_return_sequences=rules.width,
        length_penalty=rules.length_penalty,
        eos_token_id=list(rules.ends),
        pad_token_id=0,
        min_new_tokens=rules.min_new_tokens or None,
        max_new_tokens=rules.max_new_tokens,
        repetition_penalty=rules.repetition_penalty,
        no_repeat_ngram_size=rules.decoding.ngram_size,
        bad_words_ids=[[token] for token in rules.decoding.forbidden_ids] or None,
        forced_eos_token_id=rules.decoding.last_id,
        renormalize_logits=rules.decoding.renormalised,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    return [
        (float(score), cut(sequence[len(prompt) :].tolist(), rules))
        for score, sequence in zip(found.sequences_scores, found.sequences, strict=True)
    ]


def cut(ids: list[int], rules: Rules) -> tuple[int, ...]:
    """Without the padding behind the first end."""
    ends = [index for index, token in enumerate(ids) if token in rules.ends]
    return tuple(ids[: ends[0] + 1] if ends else ids)


@pytest.mark.parametrize(
    ("width", "length_penalty"),
    [(2, 0.5), (2, 1.0), (2, 2.0), (3, -1.0), (4, 0.0), (4, 0.5), (4, 1.0), (4, 2.0)],
)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"ends": tuple(range(3, 12))},
        {"ends": tuple(range(3, 12)), "min_new_tokens": 5},
        {"ends": (3, 4, 5), "repetition_penalty": 1.3, "min_new_tokens": 2},
        {"max_new_tokens": 1},
        {"decoding": DecodingRules(last_id=3, forbidden_ids=(20, 41), ngram_size=2)},
        {"decoding": DecodingRules(ngram_size=1, renormalised=True), "repetition_penalty": 1.3},
    ],
    ids=[
        "one end",
        "many ends",
        "not before 5 tokens",
        "repetition penalty",
        "one token",
        "decoding rules",
        "renormalised",
    ],
)
def test_the_same_beams_as_transformers(
    width: int, length_penalty: float, fields: dict[str, Any]
) -> None:
    rules = Rules(width, length_penalty, **fields)
    for temperature, prompt in ((1.0, [7, 8, 9]), (0.3, list(range(10, 40)))):
        llama = model(temperature)
        for (score, ids), (wanted_score, wanted) in zip(
            search(llama, prompt, rules), reference(llama, prompt, rules), strict=True
        ):
            assert score == pytest.approx(wanted_score, rel=1e-5, abs=1e-4)
            assert ids == wanted


scores = st.lists(
    st.lists(st.floats(-8, 0, width=32), min_size=9, max_size=9), min_size=4, max_size=4
)


@given(steps=st.lists(scores, min_size=1, max_size=8), width=st.integers(2, 4))
@settings(max_examples=100, deadline=None)
def test_slots_hold_what_their_hypotheses_say(steps: list[Any], width: int) -> None:
    """A cache that is copied as told, in any order, holds each slot's own past."""
    beams = BeamSearch(Tokens(), width, 1.0, ends=1)
    cache: list[tuple[int, ...]] = [()] * width
    for step in steps:
        parents = beams.step(
            np.array(step[:width], np.float32),
            lambda slot, token: Tokens((*beams.running[slot].ids, token), ended=token == 0),
        )
        if beams.done:
            break
        assert all(parents[parent] == parent for parent in parents), "a parent keeps its slot"
        for slot in reversed(range(width)):
            cache[slot] = cache[parents[slot]]
        assert [hypothesis.ids[:-1] for hypothesis in beams.running] == cache
        cache = [hypothesis.ids for hypothesis in beams.running]
        assert len(set(cache)) == width
    ranks = [score for score, _ in beams.finished]
    assert ranks == sorted(ranks, reverse=True)
    assert all(hypothesis.ended for _, hypothesis in beams.finished)


def test_a_forbidden_token_is_never_followed() -> None:
    beams = BeamSearch(Tokens(), 2, 1.0, ends=1)
    table = np.full((2, 3), -np.inf, np.float32)
    table[:, 1] = -1
    for length in range(1, 4):
        beams.step(table, lambda slot, token: Tokens((*beams.running[slot].ids, token)))
        assert beams.running[0].ids == (1,) * length
