"""Sampling parameters: their ranges, and what is meant by leaving them out."""

from __future__ import annotations

import math

import pytest
from formerd.v1 import generation_pb2 as pb

from export.manifest import GenerationDefaults
from server.conversion.sampling import read_sampling
from server.errors import InvalidInput
from server.request import Sampling

VOCABULARY = 100
GREEDY = GenerationDefaults(temperature=0.6, top_k=5)
SAMPLES = GenerationDefaults(do_sample=True, temperature=0.6, top_p=0.9, repetition_penalty=1.1)


def read(message: pb.Sampling, defaults: GenerationDefaults = GREEDY) -> Sampling:
    return read_sampling(message, defaults, VOCABULARY, drawn_seed=7)


def test_unset_is_greedy_where_the_checkpoint_does_not_sample() -> None:
    assert read(pb.Sampling()) == Sampling(seed=7)


def test_unset_is_what_the_checkpoint_says_where_it_samples() -> None:
    wanted = Sampling(temperature=0.6, top_p=0.9, repetition_penalty=1.1, seed=7)
    assert read(pb.Sampling(), SAMPLES) == wanted


def test_each_field_replaces_the_checkpoints_by_itself() -> None:
    found = read(pb.Sampling(top_p=0.5, repetition_penalty=1.0), SAMPLES)
    assert found == Sampling(temperature=0.6, top_p=0.5, repetition_penalty=1.0, seed=7)


def given(field: str, value: float) -> pb.Sampling:
    message = pb.Sampling()
    setattr(message, field, value)
    return message


@pytest.mark.parametrize("field", ["top_k", "top_p", "min_p"])
def test_a_warping_field_without_a_temperature_means_temperature_1(field: str) -> None:
    assert read(given(field, 1)).temperature == 1.0


@pytest.mark.parametrize("field", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_a_penalty_alone_leaves_the_choice_greedy(field: str) -> None:
    assert read(given(field, 1.5)).greedy


def test_a_checkpoint_that_samples_without_a_temperature_uses_1() -> None:
    assert read(pb.Sampling(), GenerationDefaults(do_sample=True)).temperature == 1.0


@pytest.mark.parametrize("temperature", [0.0, 1e-5, 1e-45])
def test_a_tiny_temperature_is_greedy(temperature: float) -> None:
    assert read(pb.Sampling(temperature=temperature, top_k=3)).greedy


def test_top_k_beyond_the_vocabulary_is_off() -> None:
    assert read(pb.Sampling(top_k=VOCABULARY + 1)).top_k == 0
    assert read(pb.Sampling(top_k=VOCABULARY - 1)).top_k == VOCABULARY - 1


def test_a_seed_is_kept_even_if_it_is_zero() -> None:
    assert read(pb.Sampling(seed=0)).seed == 0
    assert read(pb.Sampling(seed=2**64 - 1)).seed == 2**64 - 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", 0.0),
        ("temperature", 100.0),
        ("top_k", 0),
        ("top_p", 1.0),
        ("top_p", 1e-6),
        ("min_p", 0.0),
        ("min_p", 1.0),
        ("repetition_penalty", 10.0),
        ("presence_penalty", -2.0),
        ("presence_penalty", 2.0),
        ("frequency_penalty", -2.0),
        ("frequency_penalty", 2.0),
    ],
)
def test_the_ends_of_a_range_belong_to_it(field: str, value: float) -> None:
    assert getattr(read(given(field, value)), field) == pytest.approx(value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", 100.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.0001),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", math.nan),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", -1.0),
        ("repetition_penalty", 10.1),
        ("repetition_penalty", math.nan),
        ("presence_penalty", 3.0),
        ("presence_penalty", -2.1),
        ("presence_penalty", -math.inf),
        ("frequency_penalty", 2.1),
        ("frequency_penalty", math.nan),
    ],
)
def test_beyond_the_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=rf"^sampling\.{field} is "):
        read(given(field, value))


def test_logit_bias_is_kept_in_order_of_the_ids() -> None:
    found = read(pb.Sampling(logit_bias={9: -1.0, 3: 2.5}))
    assert found.logit_bias == ((3, 2.5), (9, -1.0))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logit_bias_must_be_finite(value: float) -> None:
    with pytest.raises(InvalidInput, match=r"^sampling\.logit_bias\[3\] is "):
        read(pb.Sampling(logit_bias={3: value}))


def test_logit_bias_of_an_unknown_token_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^sampling\.logit_bias\[0\] is 100; .* ends at 99"):
        read(pb.Sampling(logit_bias={VOCABULARY: 1.0}))
