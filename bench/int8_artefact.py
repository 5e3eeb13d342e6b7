"""A decoder's artefact with 8-bit weights, quantised here: symmetric, in blocks of 32, head too.

It is for measuring: nothing verifies it.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from export.manifest import MANIFEST_FILE, Precision, describe_file, load_manifest

_BLOCK = 32
_ZERO_POINT = 128
# The one at which a row gives the same bits alone and among others.
_ACCURACY_LEVEL = 4


def int8_artefact(source: Path, target: Path) -> Path:
    """The artefact at `target`, made from the fp32 one at `source` where it is not there."""
    if target.exists():
        return target
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial, ignore=shutil.ignore_patterns("decoder.*", MANIFEST_FILE))
    model = ir.load(source / "decoder.onnx")
    quantise(model.graph)
    ir.save(model, partial / "decoder.onnx", external_data="decoder.data")
    files = {path.name: describe_file(path) for path in sorted(partial.iterdir())}
    manifest = replace(load_manifest(source), precision=Precision.INT8, files=files).sealed()
    (partial / MANIFEST_FILE).write_bytes(manifest.to_bytes())
    partial.rename(target)
    return target


def quantise(graph: ir.Graph) -> None:
    """Replaces every product with a weight by one with its 8-bit form."""
    for node in list(graph):
        weight = _weight(graph, node)
        if weight is None:
            continue
        name = node.inputs[1].name if node.inputs[1] is not None else ""
        rows, columns = weight.shape  # [out, in]
        values, scales = quantised_blocks(weight)
        product = ir.node(
            "MatMulNBits",
            [
                node.inputs[0],
                _initializer(graph, f"{name}.int8", values),
                _initializer(graph, f"{name}.scales", scales),
            ],
            {
                "K": columns,
                "N": rows,
                "bits": 8,
                "block_size": _BLOCK,
                "accuracy_level": _ACCURACY_LEVEL,
            },
            domain="com.microsoft",
        )
        ir.convenience.replace_nodes_and_values(
            graph, node, [node], [product], node.outputs, product.outputs
        )
    for name in [name for name, value in graph.initializers.items() if not value.uses()]:
        del graph.initializers[name]


def quantised_blocks(
    weight: NDArray[np.float32],
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """8-bit values `[out, in / 32, 32]` around 128, and scales `[out, in / 32]`, of `[out, in]`."""
    blocks = weight.reshape(len(weight), -1, _BLOCK)
    scales = np.abs(blocks).max(axis=2) / (_ZERO_POINT - 1)
    steps = np.rint(blocks / np.maximum(scales, np.finfo(np.float32).tiny)[:, :, None])
    return (steps + _ZERO_POINT).astype(np.uint8), scales.astype(np.float32)


def _weight(graph: ir.Graph, node: ir.Node) -> NDArray[np.float32] | None:
    """The weight `[out, in]` of a linear layer; None where a node is none."""
    if node.op_type not in ("MatMul", "Gemm") or node.inputs[1] is None:
        return None
    tensor = node.inputs[1].const_value
    if tensor is None or node.inputs[1].name not in graph.initializers:
        return None
    values: NDArray[np.float32] = tensor.numpy()
    return values if node.op_type == "Gemm" else np.ascontiguousarray(values.T)


def _initializer(graph: ir.Graph, name: str, values: NDArray[np.generic]) -> ir.Value:
    tensor = ir.Tensor(values, name=name)
    value = ir.Value(
        name=name, const_value=tensor, shape=tensor.shape, type=ir.TensorType(tensor.dtype)
    )
    graph.register_initializer(value)
    return value
