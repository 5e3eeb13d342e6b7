"""The encoder's graph, padding-free: every text of a batch on one axis of tokens."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from export.graph import GraphSource
from export.graph_attention import PackedAttention, RotaryTables, take
from export.manifest import TensorSpec
from export.weights import lay_out_for_matmul
from model.config import Pooling
from model.pooling import pool
from model.transformer import Transformer

_SHORTEST = 1e-12  # as torch.nn.functional.normalize has it


def encoder_graph(
    model: Transformer, pooling: Pooling, dtype: torch.dtype = torch.float32
) -> GraphSource:
    """The graph of an encoder; `model` gives up its weights, which must be of `dtype`."""
    return GraphSource(
        role="encoder",
        module=EncoderModule(model, pooling, dtype),
        inputs=(
            TensorSpec("input_ids", "int64", ("tokens",)),
            TensorSpec("positions", "int64", ("tokens",)),
            TensorSpec("pad_map", "int64", ("batch", "longest")),
            TensorSpec("unpad_map", "int64", ("tokens",)),
            TensorSpec("lengths", "int64", ("batch",)),
        ),
        outputs=(TensorSpec("embeddings", "float32", ("batch", model.config.d_model)),),
        sizes={"tokens": 5, "batch": 2, "longest": 3},
    )


class EncoderModule(nn.Module):
    """An encoder as its graph computes it.

    Inputs, in order, all int64: `input_ids [N]`; `positions [N]`, from 0 within each text;
    `pad_map [B, L]`, the token of each cell; `unpad_map [N]`, the cell of each token; `lengths
    [B]`. Output: `embeddings [B, d_model]` fp32, pooled and, where asked for, normalised.
    """

    def __init__(self, model: Transformer, pooling: Pooling, dtype: torch.dtype) -> None:
        super().__init__()
        lay_out_for_matmul(model)
        self.model = model
        self.pooling = pooling
        self.rotary = RotaryTables.from_config(model.config, dtype)

    def forward(self, *inputs: Tensor) -> Tensor:
        input_ids, positions, pad_map, unpad_map, lengths = inputs
        real = torch.arange(pad_map.shape[1]) < lengths.unsqueeze(1)  # [B, L]
        pad_map = pad_map.where(real, pad_map[:, :1])  # padding is a copy of the row's own token
        rotary = None
        if self.rotary is not None:
            rotary = take(self.rotary.cos, positions), take(self.rotary.sin, positions)
        mask = _causal_mask(pad_map) if self.model.config.causal_encoder else None
        attend = PackedAttention(pad_map, unpad_map, lengths, rotary, mask)
        states = self.model.encoder(input_ids, positions, attend)  # [N, d_model]
        padded = take(states, pad_map).float()  # [B, L, d_model]
        vectors = pool(padded, lengths, replace(self.pooling, normalize=False))
        return _normalise(vectors) if self.pooling.normalize else vectors


def _causal_mask(pad_map: Tensor) -> Tensor:
    """`[L, L]`, True where the column's token is the row's or stands before it."""
    columns = torch.arange(pad_map.shape[1])
    return columns <= columns[:, None]


def _normalise(vectors: Tensor) -> Tensor:
    """Rows of unit length, by a sum: CUDA's operator for the length of a vector needs cuDNN."""
    lengths = vectors.square().sum(dim=-1, keepdim=True).sqrt()
    return vectors / lengths.clamp(min=_SHORTEST)
