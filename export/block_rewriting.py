"""A traced graph whose weights become blocks.

A product with a weight becomes `MatMulNBits`, a look-up in the token table `GatherBlockQuantized`.
A table that is the output head too stays one: both nodes read the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from export.blocks import BLOCK, Blocks

DOMAIN = "com.microsoft"
PRODUCT, LOOK_UP = "MatMulNBits", "GatherBlockQuantized"

# Activations in int8 too. At any other level a single row takes another kernel, and its numbers
# would depend on whether it is alone.
_ACCURACY_LEVEL = 4

Encode = Callable[[str, NDArray[np.float32]], Blocks | None]


@dataclass(frozen=True)
class _StoredBlocks:
    """Blocks and the initializers that hold them, in the order in which the operators read them."""

    blocks: Blocks
    initializers: list[ir.Value]


class BlockRewriting:
    """One graph while its nodes are replaced."""

    def __init__(self, graph: ir.Graph, encode: Encode) -> None:
        """`encode` gives the blocks of a weight `[out, in]` by its name, or None to keep it."""
        self._graph = graph
        self._encode = encode
        self._stored: dict[str, _StoredBlocks | None] = {}  # by the name of the weight

    def rewrite(self) -> None:
        """Replaces every node that reads a weight which becomes blocks."""
        self._graph.opset_imports[DOMAIN] = 1
        for node in list(self._graph):
            match node.op_type:
                case "MatMul":
                    self._replace_product(node, transposed=True)
                case "Gemm":  # of a tied head, whose weight lies as the table does
                    self._replace_product(node, transposed=False)
                case "Gather":
                    self._replace_look_up(node)
        for name in [name for name, value in self._graph.initializers.items() if not value.uses()]:
            del self._graph.initializers[name]

    def _replace_product(self, node: ir.Node, transposed: bool) -> None:
        stored = self._store(node.inputs[1], transposed)
        if stored is None:
            return
        rows, count, _ = stored.blocks.values.shape
        inputs: list[ir.Value | None] = [node.inputs[0], *stored.initializers]
        if len(node.inputs) > 2:  # a bias, which comes sixth
            inputs += [*[None] * (5 - len(inputs)), node.inputs[2]]
        product = ir.node(
            PRODUCT,
            inputs,
            {
                "K": count * BLOCK,
                "N": rows,
                "bits": stored.blocks.bits,
                "block_size": BLOCK,
                "accuracy_level": _ACCURACY_LEVEL,
            },
            domain=DOMAIN,
        )
        self._replace(node, [product])

    def _replace_look_up(self, node: ir.Node) -> None:
        stored = self._store(node.inputs[0], transposed=False)
        if stored is None:
            return
        values, scales = stored.initializers  # tables have 8 bits, whose zero points are implied
        ids = node.inputs[1]
        assert ids is not None
        assert ids.shape is not None
        # The product wants rows of blocks, [R, K, 32], and this operator as many axes of scales.
        last_axis = _constant(-1)
        deeper = ir.node("Unsqueeze", [scales, last_axis.outputs[0]])
        attributes = {"gather_axis": 0, "quantize_axis": 2, "block_size": BLOCK, "bits": 8}
        blocks = ir.node(LOOK_UP, [values, ids, deeper.outputs[0]], attributes, domain=DOMAIN)
        shape = _constant(*[0] * len(ids.shape), -1)  # 0: an axis as it is
        # [..., K, 32] -> [..., K x 32]
        rows = ir.node("Reshape", [blocks.outputs[0], shape.outputs[0]])
        self._replace(node, [last_axis, deeper, blocks, shape, rows])

    def _store(self, weight: ir.Value | None, transposed: bool) -> _StoredBlocks | None:
        """The blocks of a node's input; None where it is no weight, or one that stays as it is."""
        if weight is None or weight.name is None or weight.const_value is None:
            return None
        name = weight.name
        if name not in self._stored:
            values = weight.const_value.numpy()
            values = np.ascontiguousarray(values.T) if transposed else values
            blocks = self._encode(name, values)
            self._stored[name] = None if blocks is None else self._register_blocks(name, blocks)
        return self._stored[name]

    def _register_blocks(self, name: str, blocks: Blocks) -> _StoredBlocks:
        parts = blocks.parts().items()
        return _StoredBlocks(blocks, [self._register(f"{name}.{part}", it) for part, it in parts])

    def _register(self, name: str, array: NDArray[Any]) -> ir.Value:
        tensor = ir.Tensor(array, name=name)
        value = ir.Value(
            name=name, const_value=tensor, shape=tensor.shape, type=ir.TensorType(tensor.dtype)
        )
        self._graph.register_initializer(value)
        return value

    def _replace(self, node: ir.Node, nodes: list[ir.Node]) -> None:
        ir.convenience.replace_nodes_and_values(
            self._graph, node, [node], nodes, node.outputs, nodes[-1].outputs
        )


def _constant(*numbers: int) -> ir.Node:
    """Within the graph: where shapes are inferred, nobody opens a file of weights."""
    return ir.node("Constant", [], {"value": ir.tensor(numbers, dtype=ir.DataType.INT64)})
