"""T5 (Raffel et al. 2020), T5 v1.1 and Flan-T5: an encoder-decoder with relative positions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from model.checkpoint import CheckpointError
from model.checkpoints.family import ACTIVATIONS, TensorTable, refuse_other_than, require
from model.config import Activation, Kind, Norm, NormPlacement, Positions, TransformerConfig

# Our field -> the one of config.json.
_FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "d_model",
    "heads": "num_heads",
    "head_dim": "d_kv",
    "d_ff": "d_ff",
    "encoder_layers": "num_layers",
}
_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "is_encoder_decoder": (True,),
    "is_decoder": (False,),
    "quantization_config": (),
}
# Relative positions have no end; this is what the published models were trained on.
_LONGEST = 512


def _attention(ours: str, theirs: str) -> dict[str, str]:
    parts = {"query": "q", "key": "k", "value": "v", "output": "o"}
    return {f"{ours}.{part}": f"{theirs}.{letter}" for part, letter in parts.items()}


def _stack(name: str, feed_forward: int) -> dict[str, str]:
    """The tensors of a stack; `feed_forward` is the number of its sublayer in a block."""
    ours, theirs = f"{name}.blocks.{{layer}}", f"{name}.block.{{layer}}.layer"
    return {
        f"{name}.relative_bias.table": (
            f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        ),
        **_attention(f"{ours}.attention", f"{theirs}.0.SelfAttention"),
        f"{ours}.attention_residual.norm": f"{theirs}.0.layer_norm",
        f"{ours}.feed_forward.gate": f"{theirs}.{feed_forward}.DenseReluDense.wi_0",
        f"{ours}.feed_forward.up": f"{theirs}.{feed_forward}.DenseReluDense.wi_1",
        f"{ours}.feed_forward.down": f"{theirs}.{feed_forward}.DenseReluDense.wo",
        f"{ours}.feed_forward_residual.norm": f"{theirs}.{feed_forward}.layer_norm",
        f"{name}.norm": f"{name}.final_layer_norm",
    }


_CROSS, _OURS = "decoder.block.{layer}.layer.1", "decoder.blocks.{layer}"
TENSORS = TensorTable(
    names={
        "encoder.embedding.tokens": "shared",
        **_stack("encoder", feed_forward=1),
        **_stack("decoder", feed_forward=2),
        **_attention(f"{_OURS}.cross_attention", f"{_CROSS}.EncDecAttention"),
        f"{_OURS}.cross_attention_residual.norm": f"{_CROSS}.layer_norm",
        "decoder.head": "lm_head",
    },
    # The first files have a bias of cross-attention, which has no distances.
    unused=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    legacy={"DenseReluDense.wi.weight": "DenseReluDense.wi_1.weight"},  # without a gate
    copies={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
)


def configure(values: dict[str, Any], where: str) -> TransformerConfig:
    """T5's config.json as ours.

    Raises:
        CheckpointError: it lacks a size, or asks for what formerd does not do.
        ConfigError: a size makes no sense.
    """
    require(values, _FIELDS.values(), where)
    refuse_other_than(values, _ACCEPTED, where)
    activation, gated = _feed_forward(values, where)
    # The states are scaled exactly where the head is tied. Newer files say that it always is.
    tied = values.get("scale_decoder_outputs", values.get("tie_word_embeddings", True))
    config = TransformerConfig.from_json(
        {
            "kind": Kind.ENCODER_DECODER,
            **{ours: values[theirs] for ours, theirs in _FIELDS.items()},
            "decoder_layers": values.get("num_decoder_layers") or values["num_layers"],
            "max_positions": values.get("n_positions") or _LONGEST,
            "positions": Positions.RELATIVE,
            "relative_buckets": values.get("relative_attention_num_buckets", 32),
            "relative_max_distance": values.get("relative_attention_max_distance", 128),
            "norm": Norm.RMS,
            "norm_eps": values.get("layer_norm_epsilon", 1e-6),
            "norm_placement": NormPlacement.PRE,
            "activation": activation,
            "gated": gated,
            "scaled_attention": False,
            "attention_bias": False,
            "output_bias": False,
            "ff_bias": False,
            "tied_head": tied,
            "dropout": values.get("dropout_rate", 0.1),
        }
    )
    return replace(config, head_scale=config.d_model**-0.5 if tied else 1.0)


def _feed_forward(values: dict[str, Any], where: str) -> tuple[Activation, bool]:
    """The non-linearity, and whether it gates."""
    stated = values.get("feed_forward_proj") or "relu"
    *gate, name = str(stated).split("-")
    # What the authors call gelu is the approximation, in gated models alone.
    activation = "gelu_new" if stated == "gated-gelu" else name
    if gate not in ([], ["gated"]) or activation not in ACTIVATIONS:
        raise CheckpointError(
            f"{where}: feed_forward_proj is {stated!r}, supported: "
            f"{', '.join(ACTIVATIONS)}, each also with gated- before it"
        )
    implied = {"dense_act_fn": (activation,), "is_gated_act": (bool(gate),)}
    refuse_other_than(values, implied, where)
    return ACTIVATIONS[activation], bool(gate)
