"""Rotary positions as config.json describes them."""

from __future__ import annotations

from typing import Any

import pytest

from model.checkpoint import CheckpointError
from model.checkpoints.rope import read_rope

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
OURS = {
    "kind": "llama3",
    "factor": 8.0,
    "low_frequency_factor": 1.0,
    "high_frequency_factor": 4.0,
    "original_positions": 64,
}


@pytest.mark.parametrize(
    ("values", "theta", "scaling"),
    [
        ({}, 10_000.0, None),
        ({"rope_theta": 5e5, "rope_scaling": None}, 5e5, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}, 7.0, None),
        (
            {"rope_theta": 9.0, "rope_scaling": {"type": "linear", "factor": 2}},
            9.0,
            {"kind": "linear", "factor": 2},
        ),
        ({"rope_theta": 5e5, "rope_scaling": LLAMA3}, 5e5, OURS),
        ({"rope_parameters": LLAMA3 | {"rope_theta": 3.0}}, 3.0, OURS),
        (
            {"rope_scaling": LLAMA3, "original_max_position_embeddings": 32},
            10_000.0,
            OURS | {"original_positions": 32},
        ),
    ],
)
def test_both_spellings(values: dict[str, Any], theta: float, scaling: dict[str, Any]) -> None:
    read = read_rope({"max_position_embeddings": 512} | values, "config.json")
    assert read == {"rope_theta": theta, "rope_scaling": scaling}


def test_the_original_length_is_the_models_own_where_nothing_says() -> None:
    parameters = {k: v for k, v in LLAMA3.items() if not k.startswith("original")}
    values = {"max_position_embeddings": 512, "rope_scaling": parameters}
    assert read_rope(values, "config.json")["rope_scaling"]["original_positions"] == 512


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, ["rope_parameters", "yarn"]),
        ({"rope_scaling": {"type": "dynamic", "factor": 2}}, ["rope_scaling", "dynamic", "llama3"]),
        ({"rope_scaling": {"rope_type": "longrope"}}, ["longrope"]),
        ({"rope_scaling": "linear"}, ["rope_scaling", "'linear'", "object"]),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}},
            ["rope_parameters", "full_attention"],
        ),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, ["partial_rotary_factor 0.5"]),
    ],
)
def test_refusals(values: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(CheckpointError) as refusal:
        read_rope(values, "config.json")
    for part in ["config.json", *named]:
        assert part in str(refusal.value)
