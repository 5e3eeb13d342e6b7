"""BERT (Devlin et al. 2018) and what shares its architecture: MiniLM, BGE, E5, GTE."""

from __future__ import annotations

from typing import Any

from model.checkpoints.family import ACTIVATIONS, TensorTable, refuse_other_than, require
from model.config import Kind, Norm, NormPlacement, Positions, TransformerConfig

# Our field -> the one of config.json.
_FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "heads": "num_attention_heads",
    "d_ff": "intermediate_size",
    "encoder_layers": "num_hidden_layers",
    "max_positions": "max_position_embeddings",
}
_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "hidden_act": tuple(ACTIVATIONS),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "quantization_config": (),
}
_LAYER, _OURS = "encoder.layer.{layer}", "encoder.blocks.{layer}"
TENSORS = TensorTable(
    names={
        "encoder.embedding.tokens": "embeddings.word_embeddings",
        "encoder.embedding.positions.table": "embeddings.position_embeddings.weight",
        "encoder.embedding.types": "embeddings.token_type_embeddings",
        "encoder.embedding.norm": "embeddings.LayerNorm",
        f"{_OURS}.attention.query": f"{_LAYER}.attention.self.query",
        f"{_OURS}.attention.key": f"{_LAYER}.attention.self.key",
        f"{_OURS}.attention.value": f"{_LAYER}.attention.self.value",
        f"{_OURS}.attention.output": f"{_LAYER}.attention.output.dense",
        f"{_OURS}.attention_residual.norm": f"{_LAYER}.attention.output.LayerNorm",
        f"{_OURS}.feed_forward.up": f"{_LAYER}.intermediate.dense",
        f"{_OURS}.feed_forward.down": f"{_LAYER}.output.dense",
        f"{_OURS}.feed_forward_residual.norm": f"{_LAYER}.output.LayerNorm",
    },
    unused=(
        r"embeddings\.(position_ids|token_type_ids)",
        r"pooler\.dense\.(weight|bias)",  # for BERT's own pooled output; embeddings do without
        r"cls\..*",  # the heads of pre-training
    ),
    prefix="bert.",
    legacy={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
)


def configure(values: dict[str, Any], where: str) -> TransformerConfig:
    """BERT's config.json as ours.

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
            "norm_eps": values.get("layer_norm_eps", 1e-12),
            "norm_placement": NormPlacement.POST,
            "final_norm": False,
            "embedding_norm": True,
            "token_types": values.get("type_vocab_size", 2),
            "activation": ACTIVATIONS[values.get("hidden_act") or "gelu"],
            "dropout": values.get("hidden_dropout_prob", 0.1),
        }
    )
