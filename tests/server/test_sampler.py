"""The sampler: each row by its own rules, whatever the others do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from server.errors import InvalidInput
from server.request import GenerationRequest, Output, Sampling, Stopping
from server.sampler import Choice, SamplingRow, sample

VOCABULARY = 700  # neither a multiple of a block nor of a vector register
ENDS = Stopping(max_new_tokens=50, min_new_tokens=2, eos_ids=(0, 9), stop_token_ids=(4,))


def logits(rows: int, seed: int = 0, vocabulary: int = VOCABULARY) -> NDArray[np.float32]:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((rows, vocabulary)) * 2).astype(np.float32)


def row(
    sampling: Sampling,
    stopping: Stopping = Stopping(max_new_tokens=50),  # noqa: B008 - frozen
    output: Output = Output(),  # noqa: B008 - frozen
    index: int = 0,
    vocabulary: int = VOCABULARY,
) -> SamplingRow:
    request = GenerationRequest((1, 2, 3), sampling, stopping, output)
    return SamplingRow(request, index, vocabulary, room=1000)


def run(rows: list[SamplingRow], steps: int, seed: int = 0) -> list[list[Choice]]:
    """The choices of each row over some steps, from fresh logits each step."""
    choices: list[list[Choice]] = [[] for _ in rows]
    for step in range(steps):
        for each, choice, made in zip(
            rows, sample(logits(len(rows), seed + step), rows), choices, strict=True
        ):
            each.accept(choice.token_id)
            made.append(choice)
    return choices


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    top_k=st.sampled_from([0, 1, 40, VOCABULARY + 1]),
    top_p=st.sampled_from([0.1, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -0.3]),
    seed=st.integers(0, 2**64 - 1),
    logit_bias=st.sampled_from([(), ((5, 3.0), (6, -100.0))]),
)
outputs = st.sampled_from([Output(), Output(logprobs=True, top_logprobs=3)])
stoppings = st.sampled_from([Stopping(max_new_tokens=50), ENDS])


@given(st.lists(st.tuples(samplings, stoppings, outputs), min_size=2, max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_row_is_the_same_alone_and_mixed(
    rules: list[tuple[Sampling, Stopping, Output]],
) -> None:
    mixed = [row(*each, index=index) for index, each in enumerate(rules)]
    alone = [row(*each, index=index) for index, each in enumerate(rules)]
    for step in range(4):
        scores = logits(len(rules), seed=step)
        together = sample(scores, mixed)
        for index, (one, other, choice) in enumerate(zip(alone, mixed, together, strict=True)):
            assert sample(scores[index : index + 1].copy(), [one]) == [choice]
            one.accept(choice.token_id)
            other.accept(choice.token_id)


def test_logits_stay_as_they_are() -> None:
    scores = logits(1)
    before = scores.copy()
    everything = Sampling(0.7, 50, 0.9, 0.1, 1.2, 0.5, 0.5, 1, ((5, 2.0),))
    sample(scores, [row(everything, ENDS, Output(logprobs=True, top_logprobs=5))])
    np.testing.assert_array_equal(scores, before)


def test_a_seed_repeats_and_others_differ() -> None:
    sampling = Sampling(temperature=0.8, seed=42)

    def tokens(sampling: Sampling, index: int) -> list[int]:
        return [choice.token_id for choice in run([row(sampling, index=index)], 20)[0]]

    assert tokens(sampling, 0) == tokens(sampling, 0)
    assert tokens(sampling, 0) != tokens(sampling, 1)
    assert tokens(sampling, 0) != tokens(replace(sampling, seed=43), 0)


def expected(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.exp(scores.astype(np.float64))
    result: NDArray[np.float64] = weights / weights.sum()
    return result


@pytest.mark.parametrize(
    ("sampling", "survivors"),
    [
        (Sampling(temperature=1, seed=1), 12),
        (Sampling(temperature=1, seed=2, top_k=5), 5),
        (Sampling(temperature=1, seed=3, top_p=0.8), 5),
        (Sampling(temperature=1, seed=4, min_p=0.2), 5),
    ],
    ids=["temperature", "top_k", "top_p", "min_p"],
)
def test_tokens_come_as_often_as_they_should(sampling: Sampling, survivors: int) -> None:
    scores = -0.35 * np.arange(12, dtype=np.float32)[np.random.default_rng(0).permutation(12)]
    kept = scores >= np.sort(scores)[-survivors]
    probabilities = expected(np.where(kept, scores, -np.inf))
    draws, one = 4000, row(sampling, vocabulary=12)
    counts = np.zeros(12)
    for _ in range(draws):
        (choice,) = sample(scores[None], [one])
        one.accept(choice.token_id)
        counts[choice.token_id] += 1
    assert counts[~kept].sum() == 0
    wanted = draws * probabilities[kept]
    statistic = float(((counts[kept] - wanted) ** 2 / wanted).sum())
    # The 0.999 quantile of chi-square is below this for up to 11 degrees of freedom.
    assert statistic < 31.3


def test_bias_and_penalties_count_for_greedy_rows() -> None:
    scores = np.zeros((1, VOCABULARY), np.float32)
    scores[0, [7, 8, 9]] = [3, 2.5, 2]
    biased = row(Sampling(logit_bias=((9, 1.5), (7, -100.0))))
    assert sample(scores, [biased])[0].token_id == 9
    penalised = row(Sampling(frequency_penalty=0.3))
    tokens = []
    for _ in range(4):
        tokens.append(sample(scores, [penalised])[0].token_id)
        penalised.accept(tokens[-1])
    assert tokens == [7, 7, 8, 7]


def test_edits_and_their_order_equal_transformers() -> None:
    biases = ((0, 100.0), (2, -4.5), (5, 3.0))  # of an end token, a prompt's token and another
    one = row(Sampling(repetition_penalty=1.3, logit_bias=biases), ENDS)
    ends = [*ENDS.eos_ids, *ENDS.stop_token_ids]
    processors = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(1.3),
            SequenceBiasLogitsProcessor({(token,): bias for token, bias in biases}),
            MinNewTokensLengthLogitsProcessor(3, ENDS.min_new_tokens, ends),
        ]
    )
    ids = [1, 2, 3]
    for step, token in enumerate([7, 2, 8]):
        scores = logits(1, seed=step)
        wanted = processors(torch.tensor([ids]), torch.tensor(scores))[0].numpy()
        np.testing.assert_allclose(one.edited(scores[0]), wanted, rtol=1e-6)
        assert np.isneginf(wanted[ends]).all() == (step < ENDS.min_new_tokens)
        one.accept(token)
        ids.append(token)


def test_end_tokens_wait_for_min_new_tokens() -> None:
    scores = np.zeros((2, VOCABULARY), np.float32)
    scores[:, list(ENDS.eos_ids + ENDS.stop_token_ids)] = 50
    scores[:, 11] = 5
    rows = [row(Sampling(), ENDS), row(Sampling(temperature=0.1, top_k=5), ENDS)]
    for wanted in [{11}, {11}, {0, 4, 9}]:
        for each, choice in zip(rows, sample(scores, rows), strict=True):
            assert choice.token_id in wanted
            each.accept(choice.token_id)


def test_bias_cannot_free_an_end_token() -> None:
    biased = row(Sampling(logit_bias=((0, 100.0),)), ENDS)
    assert sample(logits(1), [biased])[0].token_id != 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_harms_nobody(value: float) -> None:
    scores = logits(3)
    rules = [Sampling(), Sampling(temperature=1, seed=5), Sampling(temperature=1, top_p=0.5)]
    wanted = sample(scores, [row(each) for each in rules])
    scores[1, 600] = value
    got = sample(scores, [row(each) for each in rules])
    assert [choice.finite for choice in got] == [True, False, True]
    assert [got[0], got[2]] == [wanted[0], wanted[2]]


def test_logprobs_are_of_the_raw_distribution() -> None:
    scores = logits(1)
    rules = Sampling(temperature=0.3, top_k=2, logit_bias=((5, 50.0),))
    (choice,) = sample(scores, [row(rules, output=Output(logprobs=True, top_logprobs=2))])
    assert choice.token_id == 5
    assert choice.logprob is not None
    raw = np.log(expected(scores[0]))
    assert choice.logprob.logprob == pytest.approx(raw[5], abs=1e-5)
    assert [token for token, _ in choice.logprob.top] == np.argsort(-raw)[:2].tolist()


def test_what_does_not_fit_the_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"sampling\.logit_bias"):
        row(Sampling(logit_bias=((VOCABULARY, 1.0),)))
    everything = Stopping(9, min_new_tokens=1, stop_token_ids=tuple(range(VOCABULARY)))
    with pytest.raises(InvalidInput, match=r"stopping\.stop_token_ids"):
        row(Sampling(), everything)


def test_end_tokens_without_logits_do_not_matter() -> None:
    beyond = Stopping(9, min_new_tokens=1, eos_ids=(VOCABULARY + 3,))
    (choice,) = sample(logits(1), [row(Sampling(), beyond)])
    assert choice.token_id == int(logits(1).argmax())


def test_forks_go_on_apart() -> None:
    penalised = Sampling(repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25)
    one = row(penalised, ENDS)
    one.accept(7)
    two = one.fork()
    for token in range(100, 200):  # beyond the room that the counts begin with
        one.accept(token)
    two.accept(8)
    alone = row(penalised, ENDS)
    alone.accept(7)
    alone.accept(8)
    scores = logits(1)[0]
    np.testing.assert_array_equal(two.edited(scores), alone.edited(scores))
    assert (one.edited(scores) != two.edited(scores)).any()
