"""The draft of a manifest: what each kind of checkpoint says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from export.draft import draft_manifest
from export.manifest import (
    DecodingRules,
    Device,
    GenerationDefaults,
    Manifest,
    Precision,
    SourceSpec,
    Task,
)
from export.recipe import find_recipe
from model.checkpoint import Checkpoint
from model.config import TransformerConfig
from tests.checkpoints import DECODER, ENCODER, ENCODER_DECODER, PAD_ID, tiny_checkpoint

_SETTINGS = {
    "forced_bos_token_id": 5,
    "forced_eos_token_id": 1,
    "bad_words_ids": [[9], [7]],
    "no_repeat_ngram_size": 2,
    "min_new_tokens": 4,
    "renormalize_logits": True,
}
_RULES = DecodingRules(5, 1, (7, 9), ngram_size=2, min_new_tokens=4, renormalised=True)


def _draft(checkpoint: Checkpoint, max_length: int | None = None) -> Manifest:
    return draft_manifest(
        checkpoint,
        name="sample",
        recipe=find_recipe(Device.CPU, Precision.FP32),
        source=SourceSpec("directory", "sample", None, {}),
        graphs={},
        files={},
        tolerance=1e-4,
        max_length=max_length,
    )


def test_an_encoder_decoder_embeds_and_generates() -> None:
    config = replace(ENCODER_DECODER, target_vocab_size=100)
    manifest = _draft(tiny_checkpoint(config), max_length=48)
    assert manifest.task == (Task.EMBED, Task.GENERATE)
    assert manifest.special_ids.decoder_start == PAD_ID
    assert manifest.vocabulary_size == 100
    assert manifest.config["vocab_size"] == ENCODER_DECODER.vocab_size
    assert (manifest.limits.max_input, manifest.limits.max_positions) == (48, 48)


@pytest.mark.parametrize("config", [DECODER, ENCODER_DECODER], ids=lambda config: config.kind)
def test_the_rules_for_targets_are_those_of_the_checkpoint(config: TransformerConfig) -> None:
    checkpoint = tiny_checkpoint(config)
    assert _draft(checkpoint).decoding == DecodingRules()
    assert _draft(replace(checkpoint, generation=_SETTINGS)).decoding == _RULES


def test_defaults_are_those_of_the_checkpoint() -> None:
    settings = {"max_new_tokens": 9, "length_penalty": 2, "num_beams": 4, "early_stopping": True}
    manifest = _draft(replace(tiny_checkpoint(ENCODER_DECODER), generation=settings))
    assert manifest.generation == GenerationDefaults(max_new_tokens=9, length_penalty=2.0)


def test_an_encoder_has_no_rules() -> None:
    checkpoint = replace(tiny_checkpoint(ENCODER), generation={"penalty_alpha": 0.6})
    assert _draft(checkpoint).decoding == DecodingRules()
