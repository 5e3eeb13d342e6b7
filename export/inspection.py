"""inspect: what an artefact is and holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from rich.console import Group, RenderableType
from rich.table import Table

from export.manifest import GraphSpec, Manifest, TensorSpec


@dataclass(frozen=True)
class GraphInspection:
    """One graph: its interface, numbers and operators."""

    role: str
    spec: GraphSpec
    parameters: int
    bytes: int  # of the graph and its weights
    operators: dict[str, int]


@dataclass(frozen=True)
class Inspection:
    """An artefact.

    Attributes:
        cache_bytes_per_position: of one slot, over all layers; 0 for encoders.
    """

    manifest: Manifest
    graphs: tuple[GraphInspection, ...]
    cache_bytes_per_position: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def inspect_artefact(directory: Path, manifest: Manifest) -> Inspection:
    """Reads the graphs; digests are not compared."""
    graphs = tuple(
        _inspect_graph(directory, role, spec, manifest)
        for role, spec in sorted(manifest.graphs.items())
    )
    pasts = [
        spec
        for graph in manifest.graphs.values()
        for spec in graph.inputs
        if spec.name.startswith("past.")
    ]
    return Inspection(manifest, graphs, sum(map(_position_bytes, pasts)))


def render(inspection: Inspection) -> RenderableType:
    """Tables for a terminal."""
    return Group(_summary(inspection), *(_interface(graph) for graph in inspection.graphs))


def _inspect_graph(
    directory: Path, role: str, spec: GraphSpec, manifest: Manifest
) -> GraphInspection:
    graph = ir.load(directory / spec.file).graph
    tensors = [value.const_value for value in graph.initializers.values()]
    return GraphInspection(
        role=role,
        spec=spec,
        parameters=sum(
            tensor.size
            for tensor in tensors
            if tensor is not None and np.issubdtype(tensor.dtype.numpy(), np.inexact)
        ),
        bytes=sum(manifest.files[name].size for name in (spec.file, *spec.weights)),
        operators=dict(Counter(node.op_type for node in graph).most_common()),
    )


def _position_bytes(past: TensorSpec) -> int:
    return (
        prod(axis for axis in past.shape if isinstance(axis, int)) * np.dtype(past.dtype).itemsize
    )


def _summary(inspection: Inspection) -> Table:
    manifest, parity = inspection.manifest, inspection.manifest.parity
    table = Table(title=manifest.name, show_header=False, title_justify="left")
    rows = {
        "kind": f"{manifest.kind}, answers {' and '.join(manifest.task)}",
        "precision": f"{manifest.precision} for {manifest.device}",
        "vocabulary": f"{manifest.vocabulary_size:,}",
        "longest input": f"{manifest.limits.max_input:,} tokens",
        "cache": f"{inspection.cache_bytes_per_position:,} bytes a position"
        if inspection.cache_bytes_per_position
        else "none",
        "parity": f"{parity.checks} checks, worst difference {parity.worst_difference:.2g}, "
        f"bound {parity.tolerance:.2g}",
        "verified on": ", ".join(manifest.verified_on),
        "source": f"{manifest.source.kind} {manifest.source.id} {manifest.source.revision or ''}",
        "built": manifest.built_at,
        "digest": manifest.digest,
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _interface(graph: GraphInspection) -> Table:
    title = f"{graph.spec.file}: {graph.parameters:,} parameters, {graph.bytes:,} bytes"
    operators = ", ".join(f"{name} {count}" for name, count in graph.operators.items())
    table = Table(title=title, caption=operators, title_justify="left", caption_justify="left")
    for column in ("", "name", "type", "shape"):
        table.add_column(column)
    for side, specs in (("in", graph.spec.inputs), ("out", graph.spec.outputs)):
        for name, dtype, shape in _folded(specs):
            table.add_row(side, name, dtype, shape)
    return table


def _folded(specs: tuple[TensorSpec, ...]) -> list[tuple[str, str, str]]:
    """One row for the same tensor of every layer: `past.*.key`."""
    rows = (
        (
            ".".join("*" if part.isdigit() else part for part in spec.name.split(".")),
            spec.dtype,
            " x ".join(map(str, spec.shape)),
        )
        for spec in specs
    )
    return list(dict.fromkeys(rows))
