"""The row mover: copies the valid positions of one cache row onto another, all layers at once.

Compaction, several completions of one prompt, beams and the prefix cache are moves of rows. The
graph has no weights; one run is one move, and it touches valid positions only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from export.graph import IR_VERSION, OPSET, PRODUCER, graph_value
from export.manifest import GraphSpec, TensorSpec
from model.config import TransformerConfig

_FILE = "mover.onnx"


def write_mover_graph(config: TransformerConfig, number: str, directory: Path) -> GraphSpec:
    """Writes `mover.onnx` for caches of the dtype `number`.

    Inputs: `length [1]` int64, the valid positions of the source, always in CPU memory; then for
    each layer and half `source.{layer}.key|value [1, G, source_capacity, D]` and
    `destination.{layer}.key|value [1, G, capacity, D]`. Outputs: `moved.{layer}.key|value`, the
    destination with the source's positions in it; bound to the destination's memory, nothing else
    is copied.
    """
    start, axis = _constant("start", 0), _constant("axis", 2)
    length = TensorSpec("length", "int64", (1,))
    length_value = graph_value(length)
    inputs, outputs, nodes = {length: length_value}, {}, []
    for cache in (f"{i}.{half}" for i in range(config.decoder_layers) for half in ("key", "value")):
        source, destination, moved = (
            TensorSpec(f"{part}.{cache}", number, (1, config.kv_heads, capacity, config.head_dim))
            for part, capacity in (
                ("source", "source_capacity"),
                ("destination", "capacity"),
                ("moved", "capacity"),
            )
        )
        inputs |= {source: graph_value(source), destination: graph_value(destination)}
        outputs[moved] = graph_value(moved)
        valid = ir.node("Slice", [inputs[source], start, length_value, axis], name=f"slice.{cache}")
        valid.outputs[0].name = f"valid.{cache}"
        scatter = ir.node(
            "TensorScatter",
            [inputs[destination], valid.outputs[0]],
            {"axis": 2},
            outputs=[outputs[moved]],
            name=f"scatter.{cache}",
        )
        nodes += [valid, scatter]
    graph = ir.Graph(
        list(inputs.values()),
        list(outputs.values()),
        nodes=nodes,
        initializers=[start, axis],
        opset_imports={"": OPSET},
        name="mover",
    )
    ir.save(ir.Model(graph, ir_version=IR_VERSION, producer_name=PRODUCER), directory / _FILE)
    return GraphSpec(file=_FILE, weights=(), inputs=tuple(inputs), outputs=tuple(outputs))


def _constant(name: str, number: int) -> ir.Value:
    tensor = ir.Tensor(np.array([number], dtype=np.int64), name=name)
    return ir.Value(
        name=name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor
    )
