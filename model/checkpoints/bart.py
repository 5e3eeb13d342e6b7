"""BART (Lewis et al. 2019): an encoder-decoder with learned positions, normalised after blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from model.checkpoint import CheckpointError
from model.checkpoints.family import ACTIVATIONS, TensorTable, refuse_other_than, require
from model.config import Kind, Norm, NormPlacement, Positions, TransformerConfig

# Our field -> the one of config.json.
_FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "d_model",
    "heads": "encoder_attention_heads",
    "d_ff": "encoder_ffn_dim",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "max_positions": "max_position_embeddings",
}
_SAME = (  # what may differ between the stacks in config.json, but not here
    ("encoder_attention_heads", "decoder_attention_heads"),
    ("encoder_ffn_dim", "decoder_ffn_dim"),
)
# Those of older files among them say what newer ones take for granted.
_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "activation_function": tuple(ACTIVATIONS),
    "normalize_before": (False,),
    "add_final_layer_norm": (False,),
    "is_encoder_decoder": (True,),
    "is_decoder": (False,),
    "quantization_config": (),
}
_POSITION_OFFSET = 2  # the first rows of the position table are never read


def output_bias(name: str, tensor: Tensor, _config: TransformerConfig) -> Tensor:
    """The bias of the output head, which is stored as `[1, vocab]`."""
    return tensor.squeeze(0) if name == "decoder.head.bias" else tensor


def _stack(name: str) -> dict[str, str]:
    ours, theirs = f"{name}.blocks.{{layer}}", f"{name}.layers.{{layer}}"
    return {
        f"{ours}.attention.query": f"{theirs}.self_attn.q_proj",
        f"{ours}.attention.key": f"{theirs}.self_attn.k_proj",
        f"{ours}.attention.value": f"{theirs}.self_attn.v_proj",
        f"{ours}.attention.output": f"{theirs}.self_attn.out_proj",
        f"{ours}.attention_residual.norm": f"{theirs}.self_attn_layer_norm",
        f"{ours}.cross_attention.query": f"{theirs}.encoder_attn.q_proj",
        f"{ours}.cross_attention.key": f"{theirs}.encoder_attn.k_proj",
        f"{ours}.cross_attention.value": f"{theirs}.encoder_attn.v_proj",
        f"{ours}.cross_attention.output": f"{theirs}.encoder_attn.out_proj",
        f"{ours}.cross_attention_residual.norm": f"{theirs}.encoder_attn_layer_norm",
        f"{ours}.feed_forward.up": f"{theirs}.fc1",
        f"{ours}.feed_forward.down": f"{theirs}.fc2",
        f"{ours}.feed_forward_residual.norm": f"{theirs}.final_layer_norm",
        f"{name}.embedding.positions.table": f"{name}.embed_positions.weight",
        f"{name}.embedding.norm": f"{name}.layernorm_embedding",
    }


TENSORS = TensorTable(
    names={
        "encoder.embedding.tokens": "shared",
        **_stack("encoder"),
        **_stack("decoder"),
        "decoder.head": "lm_head",
        "decoder.head.bias": "final_logits_bias",
    },
    unused=(r"(encoder|decoder)\.version",),  # of fairseq's own files
    prefix="model.",
    convert=output_bias,
    copies={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
    options={"head_bias": "final_logits_bias"},
)


def configure(values: dict[str, Any], where: str) -> TransformerConfig:
    """BART's config.json as ours.

    Raises:
        CheckpointError: it lacks a size, or asks for what formerd does not do.
        ConfigError: a size makes no sense.
    """
    refuse_other_than(values, {"normalize_embedding": (True,)}, where)
    positions = {"positions": Positions.LEARNED, "position_offset": _POSITION_OFFSET}
    return configure_like_bart(values, where, {**positions, "embedding_norm": True})


def configure_like_bart(
    values: dict[str, Any], where: str, own: dict[str, Any]
) -> TransformerConfig:
    """The config.json of BART or a descendant as ours; `own` are fields that differ among them.

    Raises:
        CheckpointError, ConfigError: as `configure`.
    """
    require(values, (*_FIELDS.values(), *(theirs for _, theirs in _SAME)), where)
    refuse_other_than(values, _ACCEPTED, where)
    for name, other in _SAME:
        if values[name] != values[other]:
            raise CheckpointError(
                f"{where}: {name} is {values[name]!r}, and {other} is {values[other]!r}; "
                "supported are stacks of one width"
            )
    config = TransformerConfig.from_json(
        {
            "kind": Kind.ENCODER_DECODER,
            **{ours: values[theirs] for ours, theirs in _FIELDS.items()},
            "norm": Norm.LAYER,
            "norm_placement": NormPlacement.POST,
            "final_norm": False,
            "activation": ACTIVATIONS[values.get("activation_function") or "gelu"],
            "tied_head": values.get("tie_word_embeddings", True),
            "head_bias": True,
            "dropout": values.get("dropout", 0.1),
            **own,
        }
    )
    scale = config.d_model**0.5 if values.get("scale_embedding") else 1.0
    return replace(config, embedding_scale=scale)
