"""GPT-2 (Radford et al. 2019) and what shares its architecture, such as DistilGPT-2."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from model.checkpoints.family import ACTIVATIONS, TensorTable, refuse_other_than, require
from model.config import Kind, Norm, NormPlacement, Positions, TransformerConfig

# Our field -> the one of config.json.
_FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "n_embd",
    "heads": "n_head",
    "decoder_layers": "n_layer",
    "max_positions": "n_positions",
}
_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "activation_function": tuple(ACTIVATIONS),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "quantization_config": (),
}
_FUSED = ("query", "key", "value")  # side by side in c_attn


def as_linear(name: str, tensor: Tensor, config: TransformerConfig) -> Tensor:
    """What GPT-2 keeps for one of our linear layers: `[in, out]`, and three projections in one."""
    if ".blocks." not in name or ".norm." in name:
        return tensor
    module = name.split(".")[-2]
    if module in _FUSED:
        tensor = tensor.tensor_split(len(_FUSED), dim=-1)[_FUSED.index(module)]
    return tensor.t()


_LAYER, _OURS = "h.{layer}", "decoder.blocks.{layer}"
TENSORS = TensorTable(
    names={
        "decoder.embedding.tokens": "wte",
        "decoder.embedding.positions.table": "wpe.weight",
        f"{_OURS}.attention_residual.norm": f"{_LAYER}.ln_1",
        **{f"{_OURS}.attention.{part}": f"{_LAYER}.attn.c_attn" for part in _FUSED},
        f"{_OURS}.attention.output": f"{_LAYER}.attn.c_proj",
        f"{_OURS}.feed_forward_residual.norm": f"{_LAYER}.ln_2",
        f"{_OURS}.feed_forward.up": f"{_LAYER}.mlp.c_fc",
        f"{_OURS}.feed_forward.down": f"{_LAYER}.mlp.c_proj",
        "decoder.norm": "ln_f",
        "decoder.head": "lm_head",
    },
    unused=(r"h\.\d+\.attn\.(bias|masked_bias)",),  # the causal mask
    prefix="transformer.",
    convert=as_linear,
    copies={"lm_head.weight": "wte.weight"},  # of a tied head
)


def configure(values: dict[str, Any], where: str) -> TransformerConfig:
    """GPT-2's config.json as ours.

    Raises:
        CheckpointError: it lacks a size, or asks for what formerd does not do.
        ConfigError: a size makes no sense.
    """
    require(values, _FIELDS.values(), where)
    refuse_other_than(values, _ACCEPTED, where)
    return TransformerConfig.from_json(
        {
            "kind": Kind.DECODER,
            **{ours: values[theirs] for ours, theirs in _FIELDS.items()},
            "d_ff": values.get("n_inner") or 4 * values["n_embd"],
            "positions": Positions.LEARNED,
            "norm": Norm.LAYER,
            "norm_eps": values.get("layer_norm_epsilon", 1e-5),
            "norm_placement": NormPlacement.PRE,
            "activation": ACTIVATIONS[values.get("activation_function") or "gelu_new"],
            "tied_head": values.get("tie_word_embeddings", True),
            "dropout": values.get("resid_pdrop", 0.1),
        }
    )
