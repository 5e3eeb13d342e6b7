"""The decoder's graph: one for prefill and decode, its static cache updated in place."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from export.cache_specs import cache_specs
from export.graph import ExportError, GraphSource
from export.graph_attention import CachedAttention, RotaryTables, leading, scale_of
from export.manifest import TensorSpec
from export.standard_attention import StandardAttention
from export.weights import lay_out_for_matmul
from model.attention import Attend
from model.cache import LayerCache
from model.config import Positions, TransformerConfig
from model.transformer import Decoder, Transformer


def decoder_graph(
    model: Transformer, dtype: torch.dtype = torch.float32, *, standard_ops: bool = False
) -> GraphSource:
    """The graph of a decoder; `model` gives up its weights, which must be of `dtype`.

    The cache is of `dtype`, the logits are fp32 whatever it is.

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
        module=DecoderModule(model, dtype, standard_ops=standard_ops),
        inputs=(
            TensorSpec("input_ids", "int64", ("batch", "sequence")),
            TensorSpec("past_lengths", "int32", ("batch",)),
            TensorSpec("total_sequence_length", "int32", (1,)),
            TensorSpec("logit_positions", "int64", ("logits",)),
            *cache_specs(config, "past", number, "batch", "capacity"),
        ),
        outputs=(
            TensorSpec("logits", "float32", ("logits", config.decoder_vocab_size)),
            *cache_specs(config, "present", number, "batch", "capacity"),
        ),
        sizes={"batch": 2, "sequence": 3, "logits": 4, "capacity": 5},
    )


class DecoderModule(nn.Module):
    """A decoder as its graph computes it.

    Inputs, in order: `input_ids [B, S]` int64; `past_lengths [B]` int32; `total_sequence_length
    [1]` int32, the most positions that a row holds after this step; `logit_positions [n]` int64
    into the flattened `B x S` axis; then each layer's `past` key and value `[B, G, C, D]`.
    Outputs: `logits [n, vocab]` fp32, then each layer's `present` key and value.
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
        input_ids, past_lengths, total_sequence_length, logit_positions, *halves = inputs
        positions = past_lengths.long().unsqueeze(1) + _ordinals(input_ids)  # [B, S]
        past = tuple(map(LayerCache, halves[::2], halves[1::2]))
        attend = attention_of_step(
            self.model.decoder,
            positions,
            total_sequence_length,
            past[0],
            self.rotary,
            standard_ops=self.standard_ops,
        )
        states, present = self.model.decoder(input_ids, positions, attend, past)
        states = states.flatten(0, 1).index_select(0, logit_positions)  # [n, d_model]
        logits = self.model.decoder.head(states).float()
        return (logits, *(half for cache in present for half in cache))


def _ordinals(input_ids: Tensor) -> Tensor:
    """0, 1, 2, ... in every row of `[B, S]`.

    Counted from the ids, of which none is negative, and not from their shape: shapes are the CPU's
    business, and on CUDA what is computed from one would take `past_lengths` there too, with a copy
    each way and a wait at every step.
    """
    return (input_ids >= 0).long().cumsum(dim=1) - 1


def attention_of_step(
    decoder: Decoder,
    positions: Tensor,
    total_sequence_length: Tensor,
    past: LayerCache,
    tables: RotaryTables | None,
    *,
    standard_ops: bool,
) -> Attend:
    """The self-attention that all layers of one step share.

    Args:
        positions: int64 `[B, S]`, of the new tokens.
        total_sequence_length: int32 `[1]`, the most positions that a row holds after the step.
        past: any layer's.
    """
    rotary = None if tables is None else (tables.cos, tables.sin)
    bias, scale = decoder.relative_bias, scale_of(decoder.config)
    if standard_ops:
        return StandardAttention.of_step(
            positions, total_sequence_length, past, rotary, bias, scale
        )
    biases = None
    if bias is not None:
        columns = leading(torch.arange(past.key.shape[2]), total_sequence_length.long())
        biases = bias(positions, columns)
    return CachedAttention(positions[:, -1].int(), total_sequence_length, rotary, biases, scale)


def check_head_width(config: TransformerConfig) -> None:
    """Whether the attention operator has a kernel for the heads' width.

    Raises:
        ExportError: it has none.
    """
    step = 16 if config.positions is Positions.ROTARY else 8
    if config.head_dim % step:
        raise ExportError(
            f"head_dim {config.head_dim} with positions {config.positions}: the attention operator "
            f"needs a multiple of {step}"
        )
