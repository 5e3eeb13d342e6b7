"""int8-dynamic: products of int8 weights and activations, with one activation scale for each token.

    scale = max |row| / 127          rows = round(row / scale) + 128, in uint8
    product = (rows - 128) @ weight * weight scales * scale

A token's numbers depend on that token alone: one scale for a whole tensor, which is the usual
dynamic quantisation, makes a text's embedding depend on the texts beside it. Activations are
unsigned because that is the product that processors have an instruction for; signed ones are slower
than fp32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from export.block_quantiser import BlockQuantiser
from export.block_rewriting import BlockRewriting
from export.blocks import Blocks
from export.quantiser import HeldWeight, QuantisedWeight

DOMAIN, PRODUCT = "com.microsoft", "MatMulIntegerToFloat"

_LEVELS = 127  # on either side of zero, of weights and of activations
_ZERO_POINT = 128  # of activations
_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)  # of a row or column of zeros


@dataclass(frozen=True)
class TokenQuantiser:
    """Stores linear weights in int8, a scale for each output, and the token table in 8-bit blocks.

    Attributes:
        worst_error: the most by which a restored number differs from its source, in steps.
    """

    worst_error: float

    def encode(self, name: str, weight: NDArray[np.float32]) -> QuantisedWeight | None:
        """As the protocol says; biases, norms and small tables stay as they are."""
        if (blocks := self._table(name, weight)) is not None:
            return QuantisedWeight(blocks.parts(), blocks.restore(), blocks.steps())
        if weight.ndim != 2 or "embedding" in name.split("."):
            return None
        values, scales = _quantise_outputs(weight)
        return _quantised(values, scales)

    def rewrite(self, graph: ir.Graph) -> None:
        """Replaces the products with weights and the look-up of tokens."""
        BlockRewriting(graph, self._table).rewrite()
        TokenRewriting(graph).rewrite()

    def read(self, graph: ir.Graph) -> Iterator[HeldWeight]:
        """What the nodes that `rewrite` made read."""
        yield from BlockQuantiser(bits=8, worst_error=self.worst_error).read(graph)
        for node in graph:
            if node.domain == DOMAIN and node.op_type == PRODUCT:
                values, scales = node.inputs[1], node.inputs[3]
                assert values is not None
                assert scales is not None
                assert values.const_value is not None
                assert scales.const_value is not None
                name = str(values.name)
                yield HeldWeight(
                    name.removesuffix(".values"),
                    (name, str(scales.name)),
                    _quantised(values.const_value.numpy(), scales.const_value.numpy()),
                )

    def _table(self, name: str, weight: NDArray[np.float32]) -> Blocks | None:
        if "tokens" not in name.split("."):
            return None
        return BlockQuantiser(bits=8, worst_error=self.worst_error).blocks(name, weight)


@dataclass(frozen=True)
class _Rows:
    """Activations `[N, in]` as a product reads them: uint8, and a scale `[N, 1]`."""

    values: ir.Value
    scales: ir.Value


class TokenRewriting:
    """One graph while its products are replaced.

    Of a weight `name` come `name.values`, int8 `[in, out]`, and `name.scales`, fp32 `[out]`.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._rows: dict[ir.Value, _Rows] = {}  # several products read the same activations
        self._levels = self._constant(np.float32(_LEVELS))
        self._smallest_scale = self._constant(np.float32(_SMALLEST_SCALE))
        self._zero_point = self._constant(np.uint8(_ZERO_POINT))
        self._one = self._constant(np.float32(1.0))
        self._last_axis = self._constant(np.array([-1], np.int64))

    def rewrite(self) -> None:
        """Replaces every product with a weight."""
        self._graph.opset_imports[DOMAIN] = 1
        for node in list(self._graph):
            if node.op_type == "MatMul" and self._is_weight(node.inputs[1]):
                self._replace_product(node)
        for name in [name for name, value in self._graph.initializers.items() if not value.uses()]:
            del self._graph.initializers[name]

    def _is_weight(self, value: ir.Value | None) -> bool:
        return value is not None and value.name in self._graph.initializers

    def _replace_product(self, node: ir.Node) -> None:
        states, weight = node.inputs
        assert states is not None
        assert weight is not None
        assert weight.const_value is not None
        if states not in self._rows:
            self._rows[states] = self._quantise_rows(states, node)
        rows = self._rows[states]
        values, scales = _quantise_outputs(weight.const_value.numpy().T)
        product = ir.node(
            PRODUCT,
            [
                rows.values,
                self._register(f"{weight.name}.values", values),
                self._one,  # the operator takes one scale for all rows: each row's own comes after
                self._register(f"{weight.name}.scales", scales),
                self._zero_point,
            ],
            domain=DOMAIN,
        )
        scaled = ir.node("Mul", [product.outputs[0], rows.scales])
        ir.convenience.replace_nodes_and_values(
            self._graph, node, [node], [product, scaled], node.outputs, scaled.outputs
        )

    def _quantise_rows(self, states: ir.Value, before: ir.Node) -> _Rows:
        magnitudes = ir.node("Abs", [states])
        largest = ir.node("ReduceMax", [magnitudes.outputs[0], self._last_axis], {"keepdims": 1})
        spread = ir.node("Div", [largest.outputs[0], self._levels])
        scales = ir.node("Max", [spread.outputs[0], self._smallest_scale])  # [N, 1]
        flat = ir.node("Squeeze", [scales.outputs[0], self._last_axis])  # [N]
        size = ir.node("Shape", [flat.outputs[0]])
        zero_points = ir.node("Expand", [self._zero_point, size.outputs[0]])
        inputs = [states, flat.outputs[0], zero_points.outputs[0]]
        values = ir.node("QuantizeLinear", inputs, {"axis": 0})
        nodes = [magnitudes, largest, spread, scales, flat, size, zero_points, values]
        self._graph.insert_before(before, nodes)
        return _Rows(values.outputs[0], scales.outputs[0])

    def _constant(self, value: NDArray[np.generic] | np.generic) -> ir.Value:
        """Within the graph: where shapes are inferred, nobody opens a file of weights."""
        node = ir.node("Constant", [], {"value": ir.Tensor(np.asarray(value))})
        self._graph.insert_before(self._graph[0], node)
        return node.outputs[0]

    def _register(self, name: str, values: NDArray[np.generic]) -> ir.Value:
        tensor = ir.Tensor(values, name=name)
        value = ir.Value(
            name=name, const_value=tensor, shape=tensor.shape, type=ir.TensorType(tensor.dtype)
        )
        self._graph.register_initializer(value)
        return value


def _quantise_outputs(
    weight: NDArray[np.float32],
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """`weight [out, in]` in int8 `[in, out]`, and the scale of each output, `[out]`."""
    scales = np.abs(weight).max(axis=1) / np.float32(_LEVELS)
    scales = np.maximum(scales, np.float32(_SMALLEST_SCALE))
    values = np.rint(weight / scales[:, None]).astype(np.int8)
    return np.ascontiguousarray(values.T), scales


def _quantised(values: NDArray[np.int8], scales: NDArray[np.float32]) -> QuantisedWeight:
    steps = scales[:, None]  # [out, 1]
    return QuantisedWeight({"values": values, "scales": scales}, values.T * steps, steps)
