"""The weights half of the gate: every initializer against its source, exactly.

What a graph holds in few bits is compared twice: what it stands for, with the source, within the
error of the form; and bit by bit with the source in the same form, made again.

Numbers alone cannot do this: an attention key's bias, for one, is the same for every key, so
softmax ignores it and a zeroed one shows in no output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor

from export.artefact import Artefact
from export.parity import Check, compare
from export.quantiser import HeldWeight, QuantisedWeight, Quantiser
from export.weights import transposed_names
from model.checkpoint import Checkpoint
from model.config import Positions, TransformerConfig
from model.positions import computed_table, rotary_tables
from model.transformer import Transformer

EXACT, IN_STEPS = "weights", "weights in steps"  # the names of the checks


@dataclass
class WeightChecks:
    """Compares the constants of graphs with the tensors of a checkpoint.

    Attributes:
        quantiser: what stored the graphs' weights in few bits, if anything did.
        dtype: of the weights that are stored as they are.
        traced: graph file -> weight -> the source tensors that it was compared with.
        computed: graph file -> initializers that were recomputed from the configuration.
    """

    checkpoint: Checkpoint
    quantiser: Quantiser | None = None
    dtype: torch.dtype = torch.float32
    traced: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    computed: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def compare(self, artefact: Artefact) -> Iterator[Check]:
        """Checks the graphs, and that no tensor of the source is left over."""
        wanted = stored_tensors(self.checkpoint)
        tables = computed_tables(self.checkpoint.config)
        for role, spec in artefact.manifest.graphs.items():
            file, graph = spec.file, artefact.graph(role)
            found = float_constants(graph)
            held = set()
            for weight in self.quantiser.read(graph) if self.quantiser is not None else ():
                held.add(weight.name)
                for name in weight.initializers:
                    found.pop(name, None)
                yield from self._compare_quantised(file, weight)
            for name, tensor in found.items():
                yield self._compare_stored(file, name, tensor, wanted.get(name, tables.get(name)))
            artefact.release(role)
            names = held | (found.keys() & wanted.keys())
            self.traced[file] = {
                name: self.checkpoint.sources[name] for name in wanted if name in names
            }
            self.computed[file] = tuple(name for name in found if name in tables)
        reached = {name for names in self.traced.values() for name in names}
        for name in sorted(wanted.keys() - reached):
            yield Check(EXACT, name, None, 0.0, "a tensor of the source that reaches no graph")

    def _compare_stored(
        self, file: str, name: str, tensor: ir.TensorProtocol, source: Tensor | None
    ) -> Check:
        where = f"{file}: {name} {list(tensor.shape)}"
        if source is None:
            return Check(EXACT, where, None, 0.0, "comes from no tensor of the source")
        if self._encode(name) is not None:
            return Check(EXACT, where, None, 0.0, "is not stored in few bits")
        wanted = source.to(self.dtype).numpy()
        return compare(EXACT, where, tensor.numpy(), wanted, bound=0.0)

    def _compare_quantised(self, file: str, held: HeldWeight) -> Iterator[Check]:
        assert self.quantiser is not None
        where = f"{file}: {held.name} {list(held.weight.restored.shape)}"
        wanted = self._encode(held.name)
        if wanted is None:
            yield Check(EXACT, where, None, 0.0, "comes from no tensor that is stored in few bits")
            return
        source = self.checkpoint.tensors[held.name].numpy()
        steps = wanted.steps
        yield compare(
            IN_STEPS,
            where,
            held.weight.restored / steps,
            source / steps,
            self.quantiser.worst_error,
        )
        parts = held.weight.parts
        different = [
            part for part, array in wanted.parts.items() if not _same(parts.get(part), array)
        ]
        note = f"{', '.join(different)} differ from the source's in this form" if different else ""
        yield Check(EXACT, where, None if different else 0.0, 0.0, note)

    def _encode(self, name: str) -> QuantisedWeight | None:
        source = self.checkpoint.tensors.get(name)
        if self.quantiser is None or source is None:
            return None
        return self.quantiser.encode(name, source.numpy())


def _same(found: NDArray[Any] | None, wanted: NDArray[Any]) -> bool:
    """Bit by bit: two zeros differ by their signs."""
    return (
        found is not None
        and (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        and found.tobytes() == wanted.tobytes()
    )


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
    table = computed_table(config)
    if table is None:
        return {}
    stacks = {"encoder": config.has_encoder, "decoder": config.has_decoder}
    return {f"{stack}.embedding.positions.table": table for stack, has in stacks.items() if has}


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
