"""The configuration: what it refuses, and that JSON keeps it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from model.config import ConfigError, TransformerConfig
from tests.checkpoints import DECODER, ENCODER, ENCODER_DECODER, LEARNED_DECODER


@pytest.mark.parametrize("config", [ENCODER, DECODER, LEARNED_DECODER, ENCODER_DECODER])
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
        ({"positions": "absolute"}, ["positions", "absolute", "rotary"]),
        ({"kind": "translator"}, ["kind", "translator", "encoder_decoder"]),
        ({"d_model": "64"}, ["d_model", "'64'", "int"]),
        ({"d_model": None}, ["d_model", "None", "int"]),
        ({"heads": True}, ["heads", "True", "int"]),
        ({"gated": 1}, ["gated", "1", "bool"]),
        ({"norm_eps": "small"}, ["norm_eps", "small", "float"]),
        ({"hidden_size": 64}, ["hidden_size"]),
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
