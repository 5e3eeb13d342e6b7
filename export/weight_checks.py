"""The weights half of the gate: every initializer against its source, exactly.

Numbers alone cannot do this: an attention key's bias, for one, is the same for every key, so
softmax ignores it and a zeroed one shows in no output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from export.parity import Check, compare
from export.weights import transposed_names
from model.checkpoint import Checkpoint
from model.config import Positions, TransformerConfig
from model.positions import rotary_tables, sinusoidal_table
from model.transformer import Transformer

_NAME = "weights"


@dataclass
class WeightChecks:
    """Compares the constants of graphs with the tensors of a checkpoint.

    Attributes:
        traced: graph file -> initializer -> the source tensors that it was compared with.
        computed: graph file -> initializers that were recomputed from the configuration.
    """

    checkpoint: Checkpoint
    traced: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    computed: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def compare(self, graphs: dict[str, Path]) -> Iterator[Check]:
        """Checks the graphs, by file name, and that no tensor of the source is left over."""
        wanted = stored_tensors(self.checkpoint)
        tables = computed_tables(self.checkpoint.config)
        for file, path in graphs.items():
            found = float_constants(ir.load(path).graph)
            for name, tensor in found.items():
                where = f"{file}: {name} {list(tensor.shape)}"
                source = wanted.get(name, tables.get(name))
                if source is None:
                    yield Check(_NAME, where, None, 0.0, "comes from no tensor of the source")
                else:
                    yield compare(_NAME, where, tensor.numpy(), source.numpy(), bound=0.0)
                if isinstance(tensor, ir.ExternalTensor):
                    tensor.release()  # or the whole file stays mapped while the runtime has its own
            sources = self.checkpoint.sources
            self.traced[file] = {name: sources[name] for name in found if name in wanted}
            self.computed[file] = tuple(name for name in found if name in tables)
        reached = {name for names in self.traced.values() for name in names}
        for name in sorted(wanted.keys() - reached):
            yield Check(_NAME, name, None, 0.0, "a tensor of the source that reaches no graph")


def stored_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The checkpoint's tensors in the layout in which graphs store them."""
    with torch.device("meta"):
        transposed = transposed_names(Transformer(checkpoint.config))
    return {
        name: tensor.t() if name in transposed else tensor
        for name, tensor in checkpoint.tensors.items()
    }


def computed_tables(config: TransformerConfig) -> dict[str, Tensor]:
    """The tables that come from the configuration alone, by the names that graphs give them."""
    if config.positions is Positions.ROTARY:
        cos, sin = rotary_tables(
            config.max_positions, config.head_dim, config.rope_theta, config.rope_scaling
        )
        return {"rotary.cos": cos, "rotary.sin": sin}
    if config.positions is Positions.SINUSOIDAL:
        table = sinusoidal_table(config.max_positions + config.position_offset, config.d_model)
        stacks = {"encoder": config.has_encoder, "decoder": config.has_decoder}
        return {f"{stack}.embedding.positions.table": table for stack, has in stacks.items() if has}
    return {}


def float_constants(graph: ir.Graph) -> dict[str, ir.TensorProtocol]:
    """Every constant of more than one number that some node reads, integers excepted.

    Integers are shapes and axes; single numbers are the likes of an epsilon. A wrong one of those
    shows in the numbers.
    """
    constants = {
        name: value.const_value
        for name, value in graph.initializers.items()
        if value.uses() and value.const_value is not None
    }
    for node in graph.all_nodes():
        for attribute in node.attributes.values():
            if isinstance(attribute, ir.Attr) and attribute.type is ir.AttributeType.TENSOR:
                constants[f"{node.name}.{attribute.name}"] = attribute.as_tensor()
    return {
        name: tensor
        for name, tensor in constants.items()
        if np.issubdtype(tensor.dtype.numpy(), np.inexact) and tensor.size > 1
    }
