"""DistilBERT (Sanh et al. 2019): BERT without segments, under other names."""

from __future__ import annotations

from typing import Any

from model.checkpoints.family import ACTIVATIONS, TensorTable, refuse_other_than, require
from model.config import Kind, Norm, NormPlacement, Positions, TransformerConfig

# Our field -> the one of config.json.
_FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "dim",
    "heads": "n_heads",
    "d_ff": "hidden_dim",
    "encoder_layers": "n_layers",
    "max_positions": "max_position_embeddings",
}
_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "activation": tuple(ACTIVATIONS),
    "quantization_config": (),
}
_LAYER, _OURS = "transformer.layer.{layer}", "encoder.blocks.{layer}"
TENSORS = TensorTable(
    names={
        "encoder.embedding.tokens": "embeddings.word_embeddings",
        # Computed or learned, the checkpoint holds them.
        "encoder.embedding.positions.table": "embeddings.position_embeddings.weight",
        "encoder.embedding.norm": "embeddings.LayerNorm",
        f"{_OURS}.attention.query": f"{_LAYER}.attention.q_lin",
        f"{_OURS}.attention.key": f"{_LAYER}.attention.k_lin",
        f"{_OURS}.attention.value": f"{_LAYER}.attention.v_lin",
        f"{_OURS}.attention.output": f"{_LAYER}.attention.out_lin",
        f"{_OURS}.attention_residual.norm": f"{_LAYER}.sa_layer_norm",
        f"{_OURS}.feed_forward.up": f"{_LAYER}.ffn.lin1",
        f"{_OURS}.feed_forward.down": f"{_LAYER}.ffn.lin2",
        f"{_OURS}.feed_forward_residual.norm": f"{_LAYER}.output_layer_norm",
    },
    unused=(
        r"embeddings\.position_ids",
        r"vocab_(transform|layer_norm|projector)\.(weight|bias)",  # the head of pre-training
    ),
    prefix="distilbert.",
)


def configure(values: dict[str, Any], where: str) -> TransformerConfig:
    """DistilBERT's config.json as ours.

    Raises:
        CheckpointError: it lacks a size, or asks for what formerd does not do.
        ConfigError: a size makes no sense.
    """
    require(values, _FIELDS.values(), where)
    refuse_other_than(values, _ACCEPTED, where)
    return TransformerConfig.from_json(
        {
            "kind": Kind.ENCODER,
            **{ours: values[theirs] for ours, theirs in _FIELDS.items()},
            "positions": Positions.LEARNED,
            "norm": Norm.LAYER,
            "norm_eps": 1e-12,
            "norm_placement": NormPlacement.POST,
            "final_norm": False,
            "embedding_norm": True,
            "activation": ACTIVATIONS[values.get("activation") or "gelu"],
            "dropout": values.get("dropout", 0.1),
        }
    )
