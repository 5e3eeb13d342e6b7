"""Llama (Touvron et al. 2023) and what shares its architecture, such as SmolLM2."""

from __future__ import annotations

from typing import Any

from model.checkpoints.family import ACTIVATIONS, TensorTable, refuse_other_than, require
from model.checkpoints.rope import read_rope
from model.config import Kind, Norm, NormPlacement, Positions, TransformerConfig

# Our field -> the one of config.json.
_FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "decoder_layers": "num_hidden_layers",
    "max_positions": "max_position_embeddings",
}
_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "hidden_act": tuple(ACTIVATIONS),
    "is_causal": (True,),  # some embedding models look both ways
    "partial_rotary_factor": (1, 1.0),
    "quantization_config": (),
}
_LAYER, _OURS = "layers.{layer}", "decoder.blocks.{layer}"
TENSORS = TensorTable(
    names={
        "decoder.embedding.tokens": "embed_tokens",
        f"{_OURS}.attention_residual.norm": f"{_LAYER}.input_layernorm",
        f"{_OURS}.attention.query": f"{_LAYER}.self_attn.q_proj",
        f"{_OURS}.attention.key": f"{_LAYER}.self_attn.k_proj",
        f"{_OURS}.attention.value": f"{_LAYER}.self_attn.v_proj",
        f"{_OURS}.attention.output": f"{_LAYER}.self_attn.o_proj",
        f"{_OURS}.feed_forward_residual.norm": f"{_LAYER}.post_attention_layernorm",
        f"{_OURS}.feed_forward.gate": f"{_LAYER}.mlp.gate_proj",
        f"{_OURS}.feed_forward.up": f"{_LAYER}.mlp.up_proj",
        f"{_OURS}.feed_forward.down": f"{_LAYER}.mlp.down_proj",
        "decoder.norm": "norm",
        "decoder.head": "lm_head",
    },
    unused=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),  # computed from rope_theta
    prefix="model.",
    copies={"lm_head.weight": "embed_tokens.weight"},  # of a tied head
)


def configure(values: dict[str, Any], where: str) -> TransformerConfig:
    """Llama's config.json as ours.

    Raises:
        CheckpointError: it lacks a size, or asks for what formerd does not do.
        ConfigError: a size makes no sense.
    """
    require(values, _FIELDS.values(), where)
    refuse_other_than(values, _ACCEPTED, where)
    attention_bias = values.get("attention_bias", False)
    return TransformerConfig.from_json(
        {
            "kind": Kind.DECODER,
            **{ours: values[theirs] for ours, theirs in _FIELDS.items()},
            "kv_heads": values.get("num_key_value_heads") or 0,
            "head_dim": values.get("head_dim") or 0,
            "positions": Positions.ROTARY,
            **read_rope(values, where),
            "norm": Norm.RMS,
            "norm_eps": values.get("rms_norm_eps", 1e-6),
            "norm_placement": NormPlacement.PRE,
            "activation": ACTIVATIONS[values.get("hidden_act") or "silu"],
            "gated": True,
            "attention_bias": attention_bias,
            "output_bias": attention_bias,
            "ff_bias": values.get("mlp_bias", False),
            "tied_head": values.get("tie_word_embeddings", False),
        }
    )
