"""The graph of an encoder-decoder's decoder: one token a row and step, beside its source."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from export.cache_specs import cache_specs
from export.cross_attention import CrossAttention, StandardCrossAttention
from export.decoder_graph import attention_of_step, check_head_width
from export.graph import GraphSource
from export.graph_attention import RotaryTables, scale_of
from export.manifest import TensorSpec
from export.weights import lay_out_for_matmul
from model.cache import LayerCache
from model.transformer import Transformer


def target_decoder_graph(
    model: Transformer, dtype: torch.dtype = torch.float32, *, standard_ops: bool = False
) -> GraphSource:
    """The graph of an encoder-decoder's decoder; `model` gives up its weights, of `dtype`.

    The cache and the sources' keys and values are of `dtype`, the logits are fp32.

    Args:
        standard_ops: whether every operator is to be one of the ONNX standard.

    Raises:
        ExportError: the attention operator has no kernel for the heads' width.
    """
    config = model.config
    if not standard_ops:
        check_head_width(config)
    number = str(dtype).removeprefix("torch.")
    return GraphSource(
        role="decoder",
        module=TargetDecoderModule(model, dtype, standard_ops=standard_ops),
        inputs=(
            TensorSpec("input_ids", "int64", ("batch", 1)),
            TensorSpec("past_lengths", "int32", ("batch",)),
            TensorSpec("total_sequence_length", "int32", (1,)),
            TensorSpec("logit_positions", "int64", ("logits",)),
            TensorSpec("source_lengths", "int32", ("batch",)),
            TensorSpec("total_source_length", "int32", (1,)),
            *cache_specs(config, "past", number, "batch", "capacity"),
            *cache_specs(config, "cross", number, "batch", "source_capacity"),
        ),
        outputs=(
            TensorSpec("logits", "float32", ("logits", config.decoder_vocab_size)),
            *cache_specs(config, "present", number, "batch", "capacity"),
            *cache_specs(config, "present_cross", number, "batch", "source_capacity"),
        ),
        sizes={"batch": 2, "logits": 4, "capacity": 5, "source_capacity": 7},
    )


class TargetDecoderModule(nn.Module):
    """The decoder of an encoder-decoder as its graph computes it.

    Inputs, in order: `input_ids [B, 1]` int64; `past_lengths [B]` int32; `total_sequence_length
    [1]` int32, the most positions that a row holds after this step; `logit_positions [n]` int64,
    the rows whose logits are wanted; `source_lengths [B]` int32; `total_source_length [1]` int32,
    the most of them; each layer's `past` key and value `[B, G, C, D]`, then each layer's key and
    value of the sources. Outputs: `logits [n, vocab]` fp32, each layer's `present` key and value,
    and those of the sources, as they were.
    """

    def __init__(
        self, model: Transformer, dtype: torch.dtype, *, standard_ops: bool = False
    ) -> None:
        super().__init__()
        lay_out_for_matmul(model)
        self.model = model
        self.standard_ops = standard_ops
        self.rotary = RotaryTables.from_config(model.config, dtype)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        input_ids, past_lengths, total_sequence_length, logit_positions, *others = inputs
        source_lengths, total_source_length, *halves = others
        caches = tuple(map(LayerCache, halves[::2], halves[1::2]))
        past, memory = caches[: len(caches) // 2], caches[len(caches) // 2 :]
        positions = past_lengths.long().unsqueeze(1)  # [B, 1]
        attend = attention_of_step(
            self.model.decoder,
            positions,
            total_sequence_length,
            past[0],
            self.rotary,
            standard_ops=self.standard_ops,
        )
        cross = self._cross_attention(source_lengths, total_source_length, memory[0])
        states, present = self.model.decoder(input_ids, positions, attend, past, memory, cross)
        states = states.flatten(0, 1).index_select(0, logit_positions)  # [n, d_model]
        logits = self.model.decoder.head(states).float()
        return logits, *(half for cache in (*present, *cross.presents) for half in cache)

    def _cross_attention(
        self, source_lengths: Tensor, total_source_length: Tensor, memory: LayerCache
    ) -> CrossAttention | StandardCrossAttention:
        config = self.model.config
        scale = scale_of(config)
        if self.standard_ops:
            return StandardCrossAttention.of_step(
                source_lengths, total_source_length, memory, scale
            )
        return CrossAttention.of_step(source_lengths, total_source_length, config.kv_heads, scale)
