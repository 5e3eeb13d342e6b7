"""Weights in blocks of few bits: which they are, and how a graph's are read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from export.block_rewriting import DOMAIN, LOOK_UP, PRODUCT, BlockRewriting
from export.blocks import BLOCK, PARTS, Blocks
from export.quantiser import HeldWeight, QuantisedWeight

# Small tables, of which a token reads one row or none.
_KEPT = frozenset(("positions", "relative_bias", "types"))
# The token table is read a row at a time and the output head decides between tokens: fewer bits
# would save little of the one and spoil the other, and the two may be one.
_ALWAYS_IN_EIGHT_BITS = frozenset(("tokens", "head"))


@dataclass(frozen=True)
class BlockQuantiser:
    """Stores every linear weight and token table in blocks.

    Attributes:
        bits: 4 or 8.
        worst_error: the most by which a restored number differs from its source, in steps.
        in_eight_bits: segments of the names of parameters that get 8 bits whatever `bits` is.
    """

    bits: int
    worst_error: float
    in_eight_bits: frozenset[str] = frozenset()

    def encode(self, name: str, weight: NDArray[np.float32]) -> QuantisedWeight | None:
        """As the protocol says; only matrices whose rows are whole blocks are stored in them."""
        blocks = self.blocks(name, weight)
        return (
            None
            if blocks is None
            else QuantisedWeight(blocks.parts(), blocks.restore(), blocks.steps())
        )

    def blocks(self, name: str, weight: NDArray[np.float32]) -> Blocks | None:
        """The blocks of a parameter `[out, in]`; None for one that stays as it is."""
        segments = set(name.split("."))
        if weight.ndim != 2 or weight.shape[1] % BLOCK or segments & _KEPT:
            return None
        in_eight_bits = segments & (self.in_eight_bits | _ALWAYS_IN_EIGHT_BITS)
        return Blocks.encode(weight, bits=8 if in_eight_bits else self.bits)

    def rewrite(self, graph: ir.Graph) -> None:
        """Replaces the nodes that multiply by a weight or look a token up."""
        BlockRewriting(graph, self.blocks).rewrite()

    def read(self, graph: ir.Graph) -> Iterator[HeldWeight]:
        """What the nodes that `rewrite` made read, whatever the names of the tensors say."""
        for node in graph:
            if node.domain == DOMAIN and node.op_type == PRODUCT:
                yield _held(node, node.inputs[1:4])
            elif node.domain == DOMAIN and node.op_type == LOOK_UP:
                assert node.inputs[2] is not None
                unsqueeze = node.inputs[2].producer()
                assert unsqueeze is not None
                yield _held(node, (node.inputs[0], unsqueeze.inputs[0]))


def _held(node: ir.Node, inputs: Iterable[ir.Value | None]) -> HeldWeight:
    parts, names = {}, []
    for part, value in zip(PARTS, inputs, strict=False):
        if value is not None and value.const_value is not None:
            parts[part] = value.const_value.numpy()
            names.append(str(value.name))
    blocks = Blocks.unpack(node.attributes["bits"].as_int(), parts)
    name = names[0].removesuffix(f".{PARTS[0]}")
    return HeldWeight(name, tuple(names), QuantisedWeight(parts, blocks.restore(), blocks.steps()))
