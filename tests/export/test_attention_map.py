"""Attention maps: rows sum to 1, causality, the mean over heads, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from export.attention_map import AttentionError, AttentionKind, attention_map
from model.config import TransformerConfig
from tests.checkpoints import (
    DECODER,
    ENCODER,
    ENCODER_DECODER,
    RELATIVE_ENCODER_DECODER,
    tiny_checkpoint,
)

_TEXT = "the  crane & the sea"


_SEQ2SEQ = pytest.mark.parametrize(
    "config", [ENCODER_DECODER, RELATIVE_ENCODER_DECODER], ids=["sinusoidal", "relative"]
)


@pytest.mark.parametrize(
    "config", [ENCODER, DECODER, ENCODER_DECODER, RELATIVE_ENCODER_DECODER], ids=lambda c: c.kind
)
def test_every_token_attends_to_the_text(config: TransformerConfig) -> None:
    found = attention_map(tiny_checkpoint(config), _TEXT, None, layer=0, head=2)
    assert found.rows == found.columns
    assert "".join(found.columns).replace("<|im_start|>", "").replace("<|im_end|>", "") == _TEXT
    stack = "encoder" if config.has_encoder else "decoder"
    assert found.title == f"{stack}, layer 0, head 2"
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0, rtol=1e-5)
    later = np.triu(found.weights, k=1)
    assert (later == 0).all() == (not config.has_encoder)


@_SEQ2SEQ
def test_cross_attention_goes_from_the_target_to_the_source(config: TransformerConfig) -> None:
    checkpoint = tiny_checkpoint(config)
    found = attention_map(checkpoint, _TEXT, "the end", layer=None, head=None)
    assert "".join(found.columns) == _TEXT
    assert "".join(found.rows) == "the end"
    assert found.weights.shape == (len(found.rows), len(found.columns))
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0, rtol=1e-5)
    assert found.title == "cross-attention, layer 1, mean of all heads"


@_SEQ2SEQ
def test_the_decoder_of_a_target_sees_what_comes_before(config: TransformerConfig) -> None:
    checkpoint, kind = tiny_checkpoint(config), AttentionKind.DECODER
    found = attention_map(checkpoint, _TEXT, "the end", layer=0, head=1, kind=kind)
    assert found.rows == found.columns
    assert found.rows[0] == ""  # the start token, which stands nowhere
    assert "".join(found.rows) == "the end"
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0, rtol=1e-5)
    assert (np.triu(found.weights, k=1) == 0).all()
    assert found.title == "decoder, layer 0, head 1"


def test_a_token_is_written_after_those_before_it() -> None:
    # The weights of a row do not depend on its own token: it is not written yet.
    checkpoint = tiny_checkpoint(ENCODER_DECODER)
    first, second = (
        attention_map(checkpoint, _TEXT, target, layer=0, head=0).weights for target in ("ab", "ac")
    )
    np.testing.assert_array_equal(first, second)
    other = attention_map(checkpoint, _TEXT, "bc", layer=0, head=0).weights
    np.testing.assert_array_equal(first[0], other[0])
    assert not np.allclose(first[1], other[1], atol=1e-4)


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        (DECODER, AttentionKind.ENCODER, "--kind encoder is of other models; the kind is decoder"),
        (ENCODER, AttentionKind.CROSS, "--kind cross-attention is of other models"),
        (ENCODER_DECODER, AttentionKind.DECODER, "--kind decoder needs --target"),
        (ENCODER_DECODER, AttentionKind.CROSS, "--kind cross-attention needs --target"),
    ],
)
def test_refuses_an_attention_that_is_not_there(
    config: TransformerConfig, kind: AttentionKind, message: str
) -> None:
    with pytest.raises(AttentionError, match=message):
        attention_map(tiny_checkpoint(config), "a", None, None, None, kind)


def test_without_a_head_it_is_the_mean() -> None:
    checkpoint = tiny_checkpoint(DECODER)
    heads = [
        attention_map(checkpoint, _TEXT, None, layer=1, head=head).weights
        for head in range(DECODER.heads)
    ]
    mean = attention_map(checkpoint, _TEXT, None, layer=None, head=None).weights
    np.testing.assert_allclose(mean, np.mean(heads, axis=0), atol=1e-7)


@pytest.mark.parametrize(
    ("text", "target", "layer", "head", "message"),
    [
        ("a", None, 2, None, "--layer 2; the model has 0 to 1"),
        ("a", None, None, -1, "--head -1; the model has 0 to 3"),
        ("a", "b", None, None, "--target is for encoder-decoder models; the kind is decoder"),
        ("", None, None, None, "--text has 0 tokens; it must have 1 to 512"),
        ("x" * 600, None, None, None, "--text has 600 tokens"),
    ],
)
def test_refuses_by_the_option(
    text: str, target: str | None, layer: int | None, head: int | None, message: str
) -> None:
    with pytest.raises(AttentionError, match=message):
        attention_map(tiny_checkpoint(DECODER), text, target, layer, head)
