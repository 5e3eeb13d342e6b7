"""The configuration: what it refuses, and that JSON keeps it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from model.config import RopeScaling, RopeScalingKind, TransformerConfig
from model.typed_fields import ConfigError
from tests.checkpoints import (
    DECODER,
    ENCODER,
    ENCODER_DECODER,
    LEARNED_DECODER,
    RELATIVE_ENCODER_DECODER,
)

SCALED = replace(
    DECODER, rope_scaling=RopeScaling(RopeScalingKind.LLAMA3, 8.0, 1.0, 4.0, original_positions=64)
)
LINEAR = {"kind": "linear", "factor": 2.0}
LLAMA3 = {"kind": "llama3", "factor": 8.0, "original_positions": 64}


@pytest.mark.parametrize(
    "config",
    [ENCODER, DECODER, LEARNED_DECODER, ENCODER_DECODER, RELATIVE_ENCODER_DECODER, SCALED],
)
def test_json_round_trip(config: TransformerConfig) -> None:
    assert TransformerConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_heads_fill_in_what_is_not_said() -> None:
    config = replace(DECODER, kv_heads=0, head_dim=0)
    assert (config.kv_heads, config.head_dim) == (4, 16)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vocab_size": 0}, ["vocab_size", "0"]),
        ({"d_model": -1}, ["d_model", "-1"]),
        ({"heads": 0}, ["heads", "0"]),
        ({"d_ff": 0}, ["d_ff", "0"]),
        ({"max_positions": 0}, ["max_positions", "0"]),
        ({"norm_eps": 2.0}, ["norm_eps", "2.0"]),
        ({"dropout": 1.0}, ["dropout", "1.0"]),
        ({"rope_theta": 0.0}, ["rope_theta", "0.0"]),
        ({"kv_heads": 3}, ["heads 4", "kv_heads 3"]),
        ({"decoder_layers": 0}, ["decoder", "decoder_layers 0"]),
        ({"encoder_layers": 2}, ["decoder", "encoder_layers 2"]),
        ({"head_dim": 7}, ["rotary", "head_dim", "7"]),
        ({"positions": "sinusoidal", "d_model": 63}, ["sinusoidal", "d_model", "63"]),
        ({"position_offset": 2}, ["position_offset 2", "rotary"]),
        ({"target_vocab_size": 9}, ["target_vocab_size 9", "decoder"]),
        ({"causal_encoder": True}, ["causal_encoder", "decoder"]),
        ({"positions": "absolute"}, ["positions", "absolute", "rotary"]),
        ({"kind": "translator"}, ["kind", "translator", "encoder_decoder"]),
        ({"d_model": "64"}, ["d_model", "'64'", "int"]),
        ({"d_model": None}, ["d_model", "None", "int"]),
        ({"heads": True}, ["heads", "True", "int"]),
        ({"gated": 1}, ["gated", "1", "bool"]),
        ({"norm_eps": "small"}, ["norm_eps", "small", "float"]),
        ({"norm_eps": 10**400}, ["norm_eps", "too large"]),
        ({"rope_theta": float("nan")}, ["rope_theta", "nan"]),
        ({"decoder_layers": 10**9}, ["decoder_layers", "1000000000"]),
        ({"max_positions": 1 << 24, "head_dim": 64}, ["max_positions 16777216", "head_dim 64"]),
        (
            {"positions": "sinusoidal", "max_positions": 1 << 24},
            ["max_positions 16777216", "d_model 64"],
        ),
        ({"rope_scaling": "linear"}, ["rope_scaling", "'linear'", "object"]),
        ({"rope_scaling": {"kind": "yarn", "factor": 2.0}}, ["yarn", "linear, llama3"]),
        ({"rope_scaling": {"kind": "linear"}}, ["rope_scaling", "factor"]),
        ({"rope_scaling": LINEAR | {"factor": 0.5}}, ["rope_scaling factor", "0.5"]),
        ({"rope_scaling": LINEAR | {"beta": 1}}, ["rope_scaling", "beta"]),
        ({"rope_scaling": LLAMA3 | {"low_frequency_factor": 4.0}}, ["4.0 and 4.0"]),
        ({"rope_scaling": LLAMA3 | {"original_positions": 0}}, ["original_positions", "0"]),
        ({"rope_scaling": LINEAR, "positions": "learned"}, ["rope_scaling linear", "learned"]),
        ({"hidden_size": 64}, ["hidden_size"]),
        ({"positions": "relative"}, ["positions relative", "kind decoder"]),
        ({"scaled_attention": False}, ["scaled_attention false", "kind decoder"]),
        ({"relative_buckets": 3}, ["relative_buckets", "3", "4"]),
        ({"relative_max_distance": 16}, ["relative_max_distance is 16", "relative_buckets 32"]),
        ({"positions": "sinusoidal_halves", "d_model": 63}, ["sinusoidal_halves", "63"]),
        (
            {"positions": "sinusoidal_halves", "max_positions": 1 << 24},
            ["max_positions 16777216", "d_model 64"],
        ),
    ],
)
def test_refusals_name_field_and_value(change: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ConfigError) as refusal:
        TransformerConfig.from_json(DECODER.to_json() | change)
    for part in named:
        assert part in str(refusal.value)


def test_missing_fields_are_listed_all_at_once() -> None:
    with pytest.raises(ConfigError, match="vocab_size, d_model, heads, d_ff, max_positions"):
        TransformerConfig.from_json({"kind": "decoder"})
