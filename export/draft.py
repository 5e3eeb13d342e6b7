"""The manifest before the gate has spoken: what a checkpoint says, as the server reads it."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from export.graph import OPSET
from export.manifest import (
    DecodingRules,
    Device,
    FileSpec,
    GenerationDefaults,
    GraphSpec,
    Limits,
    Manifest,
    ParitySummary,
    PoolingSpec,
    SourceSpec,
    SpecialIds,
    Task,
)
from export.recipe import Recipe
from model.checkpoint import Checkpoint, CheckpointError
from model.config import Kind
from model.decoding_rules import DecodingRules as StatedRules
from model.typed_fields import ConfigError

_TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy", "tokenizers")
_TASKS = {
    Kind.ENCODER: (Task.EMBED,),
    Kind.DECODER: (Task.GENERATE,),
    Kind.ENCODER_DECODER: (Task.EMBED, Task.GENERATE),
}


def draft_manifest(
    checkpoint: Checkpoint,
    *,
    name: str,
    recipe: Recipe,
    source: SourceSpec,
    graphs: dict[str, GraphSpec],
    files: dict[str, FileSpec],
    tolerance: float,
    max_length: int | None,
) -> Manifest:
    """A manifest without time or digest, and with nothing yet of the gate but its tolerance.

    Raises:
        CheckpointError: as `read_decoding_rules`.
    """
    config = checkpoint.config
    return Manifest(
        name=name,
        kind=config.kind.value,
        task=_TASKS[config.kind],
        config=json.loads(json.dumps(config.to_json())),
        vocabulary_size=config.decoder_vocab_size,
        graphs=graphs,
        limits=_limits(checkpoint, max_length),
        precision=recipe.precision,
        device=recipe.device,
        opset=OPSET,
        tools={tool: version(tool) for tool in _TOOLS},
        source=source,
        verified_on=(Device.CPU,),
        parity=ParitySummary(checks=0, worst_difference=0.0, tolerance=tolerance),
        files=files,
        special_ids=SpecialIds(
            pad=checkpoint.pad_id,
            bos=checkpoint.bos_id,
            eos=checkpoint.eos_ids,
            decoder_start=checkpoint.decoder_start_id,
        ),
        generation=_generation_defaults(checkpoint.generation),
        decoding=read_decoding_rules(checkpoint),
        pooling=_pooling(checkpoint),
        prompts=checkpoint.prompts,
        default_prompt=checkpoint.default_prompt,
        chat_template=checkpoint.chat_template,
        chat_tokens=checkpoint.chat_tokens,
    )


def read_decoding_rules(checkpoint: Checkpoint) -> DecodingRules:
    """What the checkpoint's generation settings demand of every completion.

    Raises:
        CheckpointError: they ask for what formerd does not do.
    """
    if not checkpoint.config.has_decoder:
        return DecodingRules()
    settings = checkpoint.generation
    if checkpoint.config.kind is Kind.DECODER and (least := settings.get("min_length")):
        raise CheckpointError(
            f"min_length is {least!r}, which counts the prompt; min_new_tokens is supported"
        )
    try:
        rules = StatedRules.from_settings(settings, checkpoint.eos_ids)
    except ConfigError as error:
        raise CheckpointError(str(error)) from None
    return DecodingRules(**asdict(rules))


def _limits(checkpoint: Checkpoint, max_length: int | None) -> Limits:
    config = checkpoint.config
    if config.kind is Kind.ENCODER:
        return Limits(max_input=max_length or checkpoint.max_input, max_positions=0)
    positions = max_length or config.max_positions
    return Limits(max_input=min(checkpoint.max_input, positions), max_positions=positions)


def _generation_defaults(settings: dict[str, Any]) -> GenerationDefaults:
    """The fields that formerd knows; a checkpoint may say more."""
    known = {
        "do_sample": bool,
        "temperature": float,
        "top_k": int,
        "top_p": float,
        "min_p": float,
        "repetition_penalty": float,
        "max_new_tokens": int,
        "length_penalty": float,
    }
    return GenerationDefaults(
        **{
            name: number(settings[name])
            for name, number in known.items()
            if settings.get(name) is not None
        }
    )


def _pooling(checkpoint: Checkpoint) -> PoolingSpec | None:
    if checkpoint.pooling is None:
        return None
    mode, normalize = checkpoint.pooling.mode.value, checkpoint.pooling.normalize
    return PoolingSpec(mode=mode, normalize=normalize, dimensions=checkpoint.config.d_model)
