"""What options make of a checkpoint: a choice of the user, or a refusal by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from export.applied_options import apply_options
from export.build_options import BuildError, BuildOptions
from model.checkpoint import CheckpointError
from model.config import Pooling, PoolingMode, TransformerConfig
from tests.checkpoints import DECODER, ENCODER, ENCODER_DECODER, tiny_checkpoint


def test_an_encoder_decoder_always_pools() -> None:
    """The mean of its encoder's states, unless it or the user says otherwise."""
    options, checkpoint = BuildOptions(Path("artefact"), "sample"), tiny_checkpoint(ENCODER_DECODER)
    assert checkpoint.pooling is None
    found = apply_options(checkpoint, options).pooling
    assert found == Pooling(PoolingMode.MEAN, normalize=False)
    stated = replace(checkpoint, pooling=Pooling(PoolingMode.CLS, normalize=True))
    assert apply_options(stated, options).pooling == stated.pooling
    found = apply_options(checkpoint, replace(options, pooling=PoolingMode.LAST)).pooling
    assert found == Pooling(PoolingMode.LAST, normalize=False)


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (DECODER, {"min_length": 3}, "min_length is 3, which counts the prompt"),
        (ENCODER_DECODER, {"penalty_alpha": 0.6}, "not supported: penalty_alpha is 0.6"),
    ],
)
def test_refuses_decoding_that_it_cannot_follow(
    config: TransformerConfig, settings: dict[str, Any], message: str
) -> None:
    checkpoint = replace(tiny_checkpoint(config), generation=settings)
    with pytest.raises(CheckpointError, match=message):
        apply_options(checkpoint, BuildOptions(Path("artefact"), "sample"))


def test_options_must_fit_the_kind() -> None:
    encoder, decoder = tiny_checkpoint(ENCODER), tiny_checkpoint(DECODER)
    options = BuildOptions(Path("artefact"), "sample")
    with pytest.raises(BuildError, match="does not say how to pool; add --pooling: mean, cls, max"):
        apply_options(replace(encoder, pooling=None), options)
    with pytest.raises(BuildError, match="--pooling cls is for encoders"):
        apply_options(decoder, replace(options, pooling=PoolingMode.CLS))
    with pytest.raises(BuildError, match="--max-length 513; the model takes 1 to 512"):
        apply_options(decoder, replace(options, max_length=513))
    changed = apply_options(encoder, replace(options, pooling=PoolingMode.CLS))
    assert changed.pooling == Pooling(PoolingMode.CLS, normalize=True)
