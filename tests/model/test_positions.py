"""Sinusoidal, learned, rotary and relative positions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cosine_similarity
from transformers import T5Config
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention

from model.config import RopeScaling, RopeScalingKind
from model.positions import (
    PositionEmbedding,
    RelativePositionBias,
    distance_buckets,
    rotary_tables,
    rotate,
    sinusoidal_table,
)
from tests.checkpoints import LEARNED_DECODER, RELATIVE_ENCODER_DECODER


@pytest.mark.parametrize(
    ("position", "row"),
    [
        (0, [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]),
        (1, [0.841, 0.540, 0.100, 0.995, 0.010, 1.000, 0.001, 1.000]),
        (4, [-0.757, -0.654, 0.389, 0.921, 0.040, 0.999, 0.004, 1.000]),
    ],
)
def test_sinusoidal_row(position: int, row: list[float]) -> None:
    table = sinusoidal_table(5, 8)
    assert table[position].tolist() == pytest.approx(row, abs=5e-4)


@pytest.mark.parametrize(("position", "similarity"), [(1, 0.8838), (10, 0.4240)])
def test_sinusoidal_similarity_to_the_first_position(position: int, similarity: float) -> None:
    table = sinusoidal_table(11, 8)
    assert float(cosine_similarity(table[0], table[position], dim=0)) == pytest.approx(
        similarity, abs=5e-5
    )


def test_rotary_scores_depend_on_relative_position_only() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 1, 16, generator=generator)
    cos, sin = rotary_tables(64, 16, theta=10_000.0)

    def score(at: int, of: int) -> float:
        turned_query = rotate(query, cos[at][None], sin[at][None])
        turned_key = rotate(key, cos[of][None], sin[of][None])
        return float((turned_query * turned_key).sum())

    assert score(40, 33) == pytest.approx(score(7, 0), abs=1e-5)
    assert score(63, 56) == pytest.approx(score(7, 0), abs=1e-5)
    assert abs(score(8, 0) - score(7, 0)) > 1e-2


def test_rotary_keeps_lengths() -> None:
    states = torch.randn(5, 3, 16, generator=torch.Generator().manual_seed(0))
    cos, sin = rotary_tables(5, 16, theta=10_000.0)
    turned = rotate(states, cos, sin)
    torch.testing.assert_close(turned.norm(dim=-1), states.norm(dim=-1))
    torch.testing.assert_close(turned[0], states[0])  # position 0 is not turned


def test_rotary_pairs_the_halves() -> None:
    states = torch.tensor([[[1.0, 0.0, 0.0, 0.0]]])  # one token, one head
    cos, sin = rotary_tables(2, 4, theta=10_000.0)
    turned = rotate(states, cos[1:], sin[1:])
    assert turned.flatten().tolist() == pytest.approx([float(cos[1, 0]), 0, float(sin[1, 0]), 0])


def test_linear_scaling_interpolates_positions() -> None:
    scaling = RopeScaling(RopeScalingKind.LINEAR, factor=4.0)
    stretched = rotary_tables(40, 16, 10_000.0, scaling)
    plain = rotary_tables(10, 16, 10_000.0)
    for found, expected in zip(stretched, plain, strict=True):
        torch.testing.assert_close(found[::4], expected)


def test_llama3_scaling_slows_down_what_turns_slowly() -> None:
    scaling = RopeScaling(RopeScalingKind.LLAMA3, 8.0, 1.0, 4.0, original_positions=64)
    # At one position an angle is the frequency itself, and small enough to be read from its sine.
    stretched = rotary_tables(2, 16, 10_000.0, scaling)[1][1].asin()
    plain = rotary_tables(2, 16, 10_000.0)[1][1].asin()
    turns = 64 * plain / 6.283185307
    slowed = plain / stretched
    assert (turns > 4).any()
    torch.testing.assert_close(slowed[turns > 4], torch.ones_like(slowed[turns > 4]))
    torch.testing.assert_close(slowed[turns < 1], torch.full_like(slowed[turns < 1], 8.0))
    between = slowed[(turns > 1) & (turns < 4)]
    assert between.numel()
    assert ((between > 1) & (between < 8)).all()


def test_learned_positions_read_the_table_from_the_offset() -> None:
    fields = LEARNED_DECODER.to_json() | {"position_offset": 2, "max_positions": 6}
    embedding = PositionEmbedding(LEARNED_DECODER.from_json(fields))
    assert embedding.table.shape == (8, LEARNED_DECODER.d_model)
    torch.testing.assert_close(embedding(torch.tensor([0, 5])), embedding.table[[2, 7]])


def test_the_halves_are_those_of_marian() -> None:
    expected = MarianSinusoidalPositionalEmbedding(600, 48).create_weight()
    torch.testing.assert_close(sinusoidal_table(600, 48, halves=True), expected)
    interleaved = sinusoidal_table(600, 48)
    assert torch.equal(sinusoidal_table(600, 48, halves=True)[:, :24], interleaved[:, ::2])


@pytest.mark.parametrize("both_sides", [True, False])
@pytest.mark.parametrize(
    ("buckets", "longest"), [(32, 128), (12, 25), (4, 3), (5, 7), (32, 1000), (320, 800)]
)
def test_distances_have_the_buckets_of_t5(buckets: int, longest: int, both_sides: bool) -> None:
    distances = torch.arange(-2 * longest, 2 * longest + 1)
    expected = T5Attention._relative_position_bucket(distances, both_sides, buckets, longest)
    clamped = distances.clamp(-longest, longest)  # all further ones share the last bucket
    assert torch.equal(distance_buckets(clamped, buckets, longest, both_sides), expected)


@pytest.mark.parametrize("both_sides", [True, False])
def test_biases_are_those_of_t5(both_sides: bool) -> None:
    config = replace(RELATIVE_ENCODER_DECODER, relative_max_distance=20)
    bias = RelativePositionBias(config, both_sides=both_sides)
    reference = T5Attention(
        T5Config(
            num_heads=config.heads,
            relative_attention_num_buckets=config.relative_buckets,
            relative_attention_max_distance=20,
            is_decoder=not both_sides,
        ),
        has_relative_attention_bias=True,
        layer_idx=0,
    )
    reference.relative_attention_bias.weight = bias.table
    found = bias(torch.arange(40, 43)[None], torch.arange(70))
    assert found.shape == (1, config.heads, 3, 70)
    assert torch.equal(found, reference.compute_bias(3, 70, past_seen_tokens=40))


def test_each_row_has_the_biases_of_its_positions() -> None:
    bias = RelativePositionBias(RELATIVE_ENCODER_DECODER, both_sides=False)
    found = bias(torch.tensor([[30], [4]]), torch.arange(31))
    assert torch.equal(found[1, :, 0, :5], found[0, :, 0, 26:])
