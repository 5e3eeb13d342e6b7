"""Attention: the textbook function, and the module against torch.nn and modules per head."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from model.attention import MultiHeadAttention, scaled_dot_product_attention
from model.cache import LayerCache
from model.eager_attention import (
    EagerCrossAttention,
    EagerSelfAttention,
    causal_mask,
    padding_mask,
)

D_MODEL, HEADS, HEAD_DIM = 64, 8, 8


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def random_attention(kv_heads: int = HEADS) -> MultiHeadAttention:
    attention = MultiHeadAttention(D_MODEL, HEADS, kv_heads=kv_heads)
    for seed, parameter in enumerate(attention.parameters()):
        parameter.data = noise(*parameter.shape, seed=seed) * 0.2
    return attention


def test_weights_are_a_softmax_over_scaled_scores() -> None:
    query, key, value = noise(2, 3, HEAD_DIM), noise(2, 5, HEAD_DIM, seed=1), noise(2, 5, 4, seed=2)
    mixed, weights = scaled_dot_product_attention(query, key, value)
    for b in range(2):
        for s in range(3):
            scores = [float(query[b, s] @ key[b, k]) / math.sqrt(HEAD_DIM) for k in range(5)]
            total = sum(math.exp(score) for score in scores)
            expected = [math.exp(score) / total for score in scores]
            assert weights[b, s].tolist() == pytest.approx(expected, rel=1e-4)
            combined = sum(weight * value[b, k] for k, weight in enumerate(expected))
            assert isinstance(combined, Tensor)
            torch.testing.assert_close(mixed[b, s], combined)


def test_each_row_of_weights_sums_to_one() -> None:
    recorded: list[Tensor] = []
    random_attention()(noise(2, 10, D_MODEL), EagerSelfAttention(recorded=recorded))
    (weights,) = recorded
    assert weights.shape == (2, HEADS, 10, 10)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, HEADS, 10))


def test_parameters_and_shape() -> None:
    attention = MultiHeadAttention(D_MODEL, HEADS)
    assert sum(parameter.numel() for parameter in attention.parameters()) == 16_640
    assert attention(noise(2, 10, D_MODEL), EagerSelfAttention())[0].shape == (2, 10, D_MODEL)


def test_one_fused_projection_gives_the_same() -> None:
    attention, hidden = random_attention(), noise(2, 10, D_MODEL)
    fused = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True)
    projections = (attention.query, attention.key, attention.value)
    fused.in_proj_weight.data = torch.cat([linear.weight for linear in projections])
    fused.in_proj_bias.data = torch.cat([linear.bias for linear in projections])
    fused.out_proj.load_state_dict(attention.output.state_dict())
    torch.testing.assert_close(
        attention(hidden, EagerSelfAttention())[0], fused(hidden, hidden, hidden)[0]
    )


def test_one_module_per_head_gives_the_same() -> None:
    attention, hidden = random_attention(), noise(2, 10, D_MODEL)
    mixed = []
    for head in range(HEADS):
        rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        query, key, value = (
            nn.functional.linear(hidden, linear.weight[rows], linear.bias[rows])
            for linear in (attention.query, attention.key, attention.value)
        )
        mixed.append(scaled_dot_product_attention(query, key, value)[0])
    expected = attention.output(torch.cat(mixed, dim=-1))
    torch.testing.assert_close(attention(hidden, EagerSelfAttention())[0], expected)


def test_grouped_query_attention_repeats_the_key_value_heads() -> None:
    grouped, full = random_attention(kv_heads=2), random_attention()
    hidden = noise(2, 10, D_MODEL)
    full.load_state_dict(grouped.state_dict() | {
        f"{name}.{kind}": getattr(getattr(grouped, name), kind)
        .unflatten(0, (2, HEAD_DIM))
        .repeat_interleave(HEADS // 2, dim=0)
        .flatten(0, 1)
        for name in ("key", "value")
        for kind in ("weight", "bias")
    })  # fmt: skip
    torch.testing.assert_close(
        grouped(hidden, EagerSelfAttention())[0], full(hidden, EagerSelfAttention())[0]
    )


def test_a_causal_position_never_sees_a_later_one() -> None:
    attention, hidden = random_attention(), noise(1, 6, D_MODEL)
    attend = EagerSelfAttention(mask=causal_mask(torch.arange(6)[None], 6))
    changed = hidden.clone()
    changed[:, 4:] = noise(1, 2, D_MODEL, seed=9)
    before, after = attention(hidden, attend)[0], attention(changed, attend)[0]
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] - after[:, 4:]).abs().min(dim=-1).values.max() > 1e-4


def test_padding_is_never_seen() -> None:
    attention, hidden = random_attention(), noise(2, 6, D_MODEL)
    attend = EagerSelfAttention(mask=padding_mask(torch.tensor([6, 4]), 6))
    changed = hidden.clone()
    changed[1, 4:] = 1e6
    before, after = attention(hidden, attend)[0], attention(changed, attend)[0]
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1, :4], after[1, :4])
    alone = attention(hidden[1:, :4], EagerSelfAttention())[0]
    torch.testing.assert_close(before[1:, :4], alone)


def test_the_cache_continues_where_it_ended() -> None:
    attention, hidden = random_attention(kv_heads=2), noise(1, 6, D_MODEL)
    whole = attention(hidden, EagerSelfAttention(mask=causal_mask(torch.arange(6)[None], 6)))[0]
    first = EagerSelfAttention(mask=causal_mask(torch.arange(4)[None], 4))
    rest = EagerSelfAttention(mask=causal_mask(torch.arange(4, 6)[None], 6))
    _, past = attention(hidden[:, :4], first)
    assert past.key.shape == (1, 2, 4, HEAD_DIM)
    continued, present = attention(hidden[:, 4:], rest, past)
    assert present.value.shape == (1, 2, 6, HEAD_DIM)
    torch.testing.assert_close(continued, whole[:, 4:])


def test_cross_attention_reads_the_source_alone() -> None:
    attention = random_attention()
    target, source = noise(2, 3, D_MODEL), noise(2, 5, D_MODEL, seed=1)
    lengths = torch.tensor([5, 2])
    reference = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True)
    projections = (attention.query, attention.key, attention.value)
    reference.in_proj_weight.data = torch.cat([linear.weight for linear in projections])
    reference.in_proj_bias.data = torch.cat([linear.bias for linear in projections])
    reference.out_proj.load_state_dict(attention.output.state_dict())
    ignored = torch.arange(5) >= lengths[:, None]
    expected, _ = reference(target, source, source, key_padding_mask=ignored)

    memory = attention.remember(source)
    assert isinstance(memory, LayerCache)
    assert memory.key.shape == (2, HEADS, 5, HEAD_DIM)
    mixed = attention.cross(target, memory, EagerCrossAttention(padding_mask(lengths, 5)))
    torch.testing.assert_close(mixed, expected)


def test_dropout_drops_weights_and_keeps_their_expectation() -> None:
    torch.manual_seed(0)
    value = torch.ones(4_000, 8, 1)
    mixed, weights = scaled_dot_product_attention(
        noise(4_000, 1, 4), noise(4_000, 8, 4, seed=1), value, dropout=0.25
    )
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(4_000, 1))
    assert float(mixed.std()) > 0.1
    assert float(mixed.mean()) == pytest.approx(1.0, abs=0.03)


def test_a_bias_and_no_scale() -> None:
    query, key, value = (noise(2, 4, 5, HEAD_DIM, seed=seed) for seed in range(3))
    bias, mask = noise(1, 4, 5, 5, seed=3), torch.arange(5) < 4
    mixed, _ = scaled_dot_product_attention(query, key, value, mask, bias=bias, scaled=False)
    expected = nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=bias.masked_fill(~mask, -torch.inf), scale=1.0
    )
    torch.testing.assert_close(mixed, expected)


def test_a_memory_is_projected_alike_on_any_axes() -> None:
    attention, source = random_attention(kv_heads=2), noise(2, 5, D_MODEL)
    key, value = attention.project_memory(source.flatten(0, 1))
    assert key.shape == (10, 2, HEAD_DIM)
    memory = attention.remember(source)
    torch.testing.assert_close(memory.key.transpose(1, 2).flatten(0, 1), key)
    torch.testing.assert_close(memory.value.transpose(1, 2).flatten(0, 1), value)
