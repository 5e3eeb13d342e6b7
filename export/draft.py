"""The manifest before the gate has spoken: what a checkpoint says, as the server reads it."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from export.graph import OPSET
from export.manifest import (
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
from model.checkpoint import Checkpoint
from model.config import Kind

_TOOLS = ("torch", "onnx", "onnx-ir", "onnxscript", "onnxruntime", "numpy", "tokenizers")
_TASKS = {Kind.ENCODER: (Task.EMBED,), Kind.DECODER: (Task.GENERATE,)}


def draft_manifest(
    checkpoint: Checkpoint,
    *,
    name: str,
    recipe: Recipe,
    source: SourceSpec,
    graphs: dict[str, GraphSpec],
    files: dict[str, FileSpec],
    max_length: int | None,
) -> Manifest:
    """A manifest without a parity summary, time or digest."""
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
        parity=ParitySummary(checks=0, worst_difference=0.0, tolerance=0.0),
        files=files,
        special_ids=SpecialIds(
            pad=checkpoint.pad_id,
            bos=checkpoint.bos_id,
            eos=checkpoint.eos_ids,
            decoder_start=checkpoint.decoder_start_id,
        ),
        generation=_generation_defaults(checkpoint.generation),
        pooling=_pooling(checkpoint),
        prompts=checkpoint.prompts,
        default_prompt=checkpoint.default_prompt,
        chat_template=checkpoint.chat_template,
        chat_tokens=checkpoint.chat_tokens,
    )


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
