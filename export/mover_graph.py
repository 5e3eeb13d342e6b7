"""The row mover: copies a span of positions of one cache row to another, all layers at once.

Compaction, several completions of one prompt, beams and the prefix cache are moves of rows or of
parts of them. The graph has no weights; one run is one move, and it touches that span only.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from export.cache_specs import cache_specs
from export.graph import IR_VERSION, OPSET, PRODUCER, graph_value
from export.manifest import GraphSpec, TensorSpec
from model.config import TransformerConfig

MOVER_NUMBERS = ("source_start", "source_end", "destination_start")
_FILE = "mover.onnx"


def write_mover_graph(config: TransformerConfig, number: str, directory: Path) -> GraphSpec:
    """Writes `mover.onnx` for caches of the dtype `number`.

    Inputs: `source_start [1]` and `source_end [1]` int64, the positions of the source that are
    copied, and `destination_start [1]` int64, where they go; all in CPU memory. Then for each layer
    and half `source.{layer}.key|value [1, G, source_capacity, D]` and
    `destination.{layer}.key|value [1, G, capacity, D]`. Outputs: `moved.{layer}.key|value`, the
    destination with those positions in it; bound to the destination's memory, nothing else is
    copied.
    """
    axis = _constant("axis", 2)
    numbers = [TensorSpec(name, "int64", (1,)) for name in MOVER_NUMBERS]
    sources = cache_specs(config, "source", number, 1, "source_capacity")
    destinations = cache_specs(config, "destination", number, 1, "capacity")
    moved = cache_specs(config, "moved", number, 1, "capacity")
    inputs = {spec: graph_value(spec) for spec in (*numbers, *sources, *destinations)}
    outputs = {spec: graph_value(spec) for spec in moved}
    start, end, destination_start = (inputs[spec] for spec in numbers)
    nodes = []
    for source, destination, result in zip(sources, destinations, moved, strict=True):
        cache = result.name.removeprefix("moved.")
        span = ir.node("Slice", [inputs[source], start, end, axis], name=f"slice.{cache}")
        span.outputs[0].name = f"span.{cache}"
        scatter = ir.node(
            "TensorScatter",
            [inputs[destination], span.outputs[0], destination_start],
            {"axis": 2},
            outputs=[outputs[result]],
            name=f"scatter.{cache}",
        )
        nodes += [span, scatter]
    graph = ir.Graph(
        list(inputs.values()),
        list(outputs.values()),
        nodes=nodes,
        initializers=[axis],
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
