"""Drift of generation: perplexity and the likeliest token, beside the model in fp32."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from export.corpus import corpus_tokens
from export.generation_drift import GenerationBounds, GenerationDrift, Tally, generation_drift
from model.generate import logits
from model.transformer import Transformer
from tests.checkpoints import VOCABULARY, byte_tokenizer
from tests.export.graphs import DecoderPair, tiny_decoder_pair

TOKENIZER = byte_tokenizer().to_str().encode()
BOUNDS = GenerationBounds(perplexity=0.01, agreement=0.95)


@pytest.fixture(scope="module")
def pair() -> DecoderPair:
    return tiny_decoder_pair()


def _drift(pair: DecoderPair, model: Transformer) -> GenerationDrift:
    return generation_drift(model, pair.session, pair.graph, TOKENIZER, max_positions=300)


def test_a_graph_in_fp32_has_not_moved(pair: DecoderPair) -> None:
    drift = _drift(pair, pair.model)
    assert drift.perplexity == pytest.approx(drift.wanted_perplexity, rel=1e-5)
    assert drift.agreement > 0.999
    assert all(check.passed for check in drift.checks(BOUNDS))


def test_perplexity_is_that_of_the_text(pair: DecoderPair) -> None:
    """Windows of 300 tokens, each computed at once."""
    tokens = torch.from_numpy(corpus_tokens(TOKENIZER, VOCABULARY, 4096))
    losses = []
    for start in range(0, len(tokens), 300):
        window = tokens[start : start + 300]
        scores, _ = logits(pair.model, window[None, :-1])
        losses.append(torch.nn.functional.cross_entropy(scores[0], window[1:], reduction="none"))
    wanted = math.exp(float(torch.cat(losses).mean()))
    assert _drift(pair, pair.model).wanted_perplexity == pytest.approx(wanted, rel=1e-4)


def test_another_model_has_moved(pair: DecoderPair) -> None:
    other = tiny_decoder_pair().model
    assert other.decoder.norm is not None
    with torch.no_grad():
        other.decoder.norm.weight.neg_()  # every logit is turned round
    drift = _drift(pair, other)
    assert drift.agreement < 0.1
    assert not any(check.passed for check in drift.checks(BOUNDS) if "likeliest" in check.shape)


def test_growth_is_a_part_of_what_was(pair: DecoderPair) -> None:
    growth, other = GenerationDrift(11.0, 10.0, 0.9).checks(BOUNDS)
    assert growth.difference == pytest.approx(0.1)
    assert other.difference == pytest.approx(0.1)
    assert "11.00 instead of 10.00" in growth.note
    assert not growth.passed
    assert growth.accept().passed


@pytest.mark.parametrize("perplexity", [math.nan, math.inf])
def test_what_is_no_number_fails_and_is_never_accepted(perplexity: float) -> None:
    growth, _ = replace(GenerationDrift(1.0, 1.0, 1.0), perplexity=perplexity).checks(BOUNDS)
    assert not growth.passed
    assert not growth.accept().passed


def test_less_perplexity_passes() -> None:
    growth, _ = GenerationDrift(9.0, 10.0, 1.0).checks(BOUNDS)
    assert growth.passed
    assert np.isclose(growth.difference or 0.0, -0.1)


def test_logits_are_bounded_where_that_is_asked_for(pair: DecoderPair) -> None:
    bounds = replace(BOUNDS, cosine=0.9995, difference=0.15)
    with torch.no_grad():
        other = tiny_decoder_pair().model
        other.decoder.head.weight[7] += 0.1  # of one token, whose logit then differs
    checks = [*_drift(pair, pair.model).checks(bounds)][2:]
    assert ["cosine" in check.shape for check in checks] == [True, False]
    assert all(check.passed and (check.difference or 0) < 1e-4 for check in checks)
    assert not any(check.passed for check in [*_drift(pair, other).checks(bounds)][2:])


@pytest.mark.parametrize("count", [0, 3])
def test_the_rows_furthest_apart_are_kept(count: int) -> None:
    tally = Tally()
    one, other = np.eye(4, dtype=np.float32)[:2]
    tally.add(one[None], one[None], np.array([0]))
    tally.add(np.array([one, 2 * one]), np.array([one, one + other]), np.array([0, 0]))
    rows = np.zeros((count, 4), np.float32)
    tally.add(rows, rows, np.zeros(count, np.int64))
    assert tally.worst_cosine == pytest.approx(0.5**0.5)
    assert tally.largest_difference == 1.0


def test_a_row_that_is_no_number_is_not_lost() -> None:
    tally = Tally()
    for row in (np.full((1, 4), np.nan, np.float32), np.ones((1, 4), np.float32)):
        tally.add(row, np.ones((1, 4), np.float32), np.array([0]))
    bounds = replace(BOUNDS, cosine=0.9, difference=1.0)
    assert [check.difference for check in tally.drift().checks(bounds)][2:] == [None, None]
