"""The encoder's graph, padding-free: every text of a batch on one axis of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.onnx import ops

from export.cache_specs import cache_specs
from export.graph import GraphSource
from export.graph_attention import (
    PackedAttention,
    RotaryTables,
    leading,
    scale_of,
    split_heads,
    take,
)
from export.manifest import TensorSpec
from export.weights import lay_out_for_matmul
from model.config import Pooling
from model.pooling import pool
from model.transformer import Transformer

_SHORTEST = 1e-12  # as torch.nn.functional.normalize has it


def encoder_graph(
    model: Transformer, pooling: Pooling, dtype: torch.dtype = torch.float32
) -> GraphSource:
    """The graph of an encoder; `model` gives up its weights, which must be of `dtype`.

    That of an encoder-decoder gives the keys and values of cross-attention, too, of `dtype`.
    """
    config = model.config
    number = str(dtype).removeprefix("torch.")
    memory_map = (TensorSpec("memory_map", "int64", ("sources", "longest_source")),)
    return GraphSource(
        role="encoder",
        module=EncoderModule(model, pooling, dtype),
        inputs=(
            TensorSpec("input_ids", "int64", ("tokens",)),
            TensorSpec("positions", "int64", ("tokens",)),
            TensorSpec("pad_map", "int64", ("batch", "longest")),
            TensorSpec("unpad_map", "int64", ("tokens",)),
            TensorSpec("lengths", "int64", ("batch",)),
            *(memory_map if config.has_decoder else ()),
        ),
        outputs=(
            TensorSpec("embeddings", "float32", ("batch", config.d_model)),
            *cache_specs(config, "cross", number, "sources", "longest_source"),
        ),
        sizes={"tokens": 5, "batch": 2, "longest": 3, "sources": 4, "longest_source": 6},
    )


class EncoderModule(nn.Module):
    """An encoder as its graph computes it.

    Inputs, in order, all int64: `input_ids [N]`; `positions [N]`, from 0 within each text;
    `pad_map [B, L]`, the token of each cell; `unpad_map [N]`, the cell of each token; `lengths
    [B]`. Output: `embeddings [B, d_model]` fp32, pooled and, where asked for, normalised.

    Where there is a decoder, one more input: `memory_map [B, L]`, the same as `pad_map`, or `[0,
    0]` where only embeddings are wanted: then no token is projected. And more outputs: for each
    layer of the decoder, the key and value `[B, G, L, D]` that it reads of a source; what padding
    cells give means nothing.
    """

    def __init__(self, model: Transformer, pooling: Pooling, dtype: torch.dtype) -> None:
        super().__init__()
        lay_out_for_matmul(model)
        self.model = model
        self.pooling = pooling
        self.rotary = RotaryTables.from_config(model.config, dtype)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        input_ids, positions, pad_map, unpad_map, lengths, *memory_map = inputs
        real = torch.arange(pad_map.shape[1]) < lengths.unsqueeze(1)  # [B, L]
        pad_map = pad_map.where(real, pad_map[:, :1])  # padding is a copy of the row's own token
        rotary = None
        if self.rotary is not None:
            rotary = take(self.rotary.cos, positions), take(self.rotary.sin, positions)
        scale = scale_of(self.model.config)
        attend = PackedAttention(pad_map, unpad_map, lengths, rotary, self._mask(pad_map), scale)
        states = self.model.encoder(input_ids, positions, attend)  # [N, d_model]
        padded = take(states, pad_map).float()  # [B, L, d_model]
        vectors = pool(padded, lengths, replace(self.pooling, normalize=False))
        if self.pooling.normalize:
            vectors = _normalise(vectors)
        return vectors, *(half for map_ in memory_map for half in self._remember(states, map_))

    def _mask(self, pad_map: Tensor) -> Tensor | None:
        """What `PackedAttention` wants of the texts' columns, 0 to L - 1."""
        columns = torch.arange(pad_map.shape[1])
        if self.model.config.causal_encoder:
            return columns <= columns[:, None]  # [L, L]
        bias = self.model.encoder.relative_bias
        return None if bias is None else bias(columns, columns).unsqueeze(0)  # [1, H, L, L]

    def _remember(self, states: Tensor, memory_map: Tensor) -> Iterator[Tensor]:
        """Each key and value of cross-attention, of packed tokens `[N, d_model]`: `[B, G, L, D]`.

        Real tokens alone are projected, and laid out for the decoder after that.
        """
        cells = ops.symbolic(
            "Size", (memory_map,), dtype=torch.int64, shape=(), version=24
        )  # at least as many as tokens, or none
        for halves in self.model.decoder.project_memory(leading(states, cells.unsqueeze(0))):
            for half in halves:  # [N, G, D]
                padded = split_heads(take(half.flatten(-2), memory_map), half.shape[-2])
                yield padded.transpose(1, 2)


def _normalise(vectors: Tensor) -> Tensor:
    """Rows of unit length, by a sum: CUDA's operator for the length of a vector needs cuDNN."""
    lengths = vectors.square().sum(dim=-1, keepdim=True).sqrt()
    return vectors / lengths.clamp(min=_SHORTEST)
