"""inspect: what an artefact is and holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir
from rich.console import Group, RenderableType
from rich.table import Table

from export.artefact import Artefact
from export.manifest import MANIFEST_FILE, PARITY_FILE, GraphSpec, Manifest, TensorSpec
from export.parity import Check, ParityReport
from export.parts import count_by_part
from export.recipe import recipe_of
from export.structure import check_structure
from export.weight_checks import EXACT, IN_STEPS


@dataclass(frozen=True)
class GraphInspection:
    """One graph: its interface, numbers and operators."""

    role: str
    spec: GraphSpec
    parameters: int
    parameters_by_part: dict[str, int]
    bytes: int  # of the graph and its weights
    bytes_by_dtype: dict[str, int]  # of the constants
    operators: dict[str, int]


@dataclass(frozen=True)
class ParityRow:
    """One line of the parity report; `difference` is None where none could be told."""

    file: str
    check: str
    shape: str
    difference: float | None
    bound: float
    accepted: bool = False  # though it is beyond the bound


@dataclass(frozen=True)
class Inspection:
    """An artefact.

    Attributes:
        cache_bytes_per_position: of one slot, over all layers; 0 for encoders.
        cache_bytes_per_source_token: of one slot, over all layers; 0 where no decoder has sources.
        parity: the rows of the parity report, weights that agree summed up by graph.
    """

    manifest: Manifest
    graphs: tuple[GraphInspection, ...]
    cache_bytes_per_position: int
    cache_bytes_per_source_token: int
    parity: tuple[ParityRow, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def inspect_artefact(artefact: Artefact) -> Inspection:
    """Reads the graphs and the parity report.

    Raises:
        ManifestError: they are not what the manifest describes.
    """
    check_structure(artefact)
    manifest = artefact.manifest
    graphs = tuple(_inspect_graph(artefact, role) for role in sorted(manifest.graphs))
    generates = "decoder" in manifest.graphs
    return Inspection(
        manifest,
        graphs,
        cache_bytes_per_position=_position_bytes(manifest, "past") if generates else 0,
        cache_bytes_per_source_token=_position_bytes(manifest, "cross") if generates else 0,
        parity=tuple(_parity_rows(artefact)),
    )


def render(inspection: Inspection) -> RenderableType:
    """Tables for a terminal."""
    return Group(
        _summary(inspection),
        *(_interface(graph) for graph in inspection.graphs),
        _parity_table(inspection.parity),
    )


def _inspect_graph(artefact: Artefact, role: str) -> GraphInspection:
    spec, graph = artefact.manifest.graphs[role], artefact.graph(role)
    tensors = {
        name: value.const_value
        for name, value in graph.initializers.items()
        if value.const_value is not None
    }
    parts = count_by_part(_parameters(artefact.manifest, graph, tensors))
    sizes: Counter[str] = Counter()
    for tensor in tensors.values():
        sizes[tensor.dtype.numpy().name] += tensor.nbytes
    return GraphInspection(
        role=role,
        spec=spec,
        parameters=sum(parts.values()),
        parameters_by_part=parts,
        bytes=sum(artefact.manifest.files[name].size for name in (spec.file, *spec.weights)),
        bytes_by_dtype=dict(sizes.most_common()),
        operators=dict(Counter(node.op_type for node in graph).most_common()),
    )


def _parameters(
    manifest: Manifest, graph: ir.Graph, tensors: Mapping[str, ir.TensorProtocol]
) -> Iterator[tuple[str, int]]:
    """The name of each weight and table, and how many numbers it has, whatever holds them."""
    quantiser = recipe_of(manifest).quantiser
    held = {} if quantiser is None else {weight.name: weight for weight in quantiser.read(graph)}
    yield from ((name, weight.weight.restored.size) for name, weight in held.items())
    parts = {part for weight in held.values() for part in weight.initializers}
    for name, tensor in tensors.items():
        if name not in parts and np.issubdtype(tensor.dtype.numpy(), np.inexact):
            yield name, tensor.size


def _parity_rows(artefact: Artefact) -> Iterator[ParityRow]:
    """What parity.json says."""
    manifest = artefact.manifest
    agreeing: dict[tuple[str, str], list[Check]] = defaultdict(list)
    for check in ParityReport.from_bytes(artefact.files[PARITY_FILE][:]).checks:
        file, _, tensor = check.shape.partition(": ")
        if check.name in (EXACT, IN_STEPS) and tensor and check.passed:
            agreeing[file, check.name].append(check)
            continue
        where = file if check.name in (EXACT, IN_STEPS) else _checked_file(manifest, check)
        difference, bound = check.difference, check.bound
        yield ParityRow(where, check.name, check.shape, difference, bound, check.accepted)
    for (file, name), checks in agreeing.items():
        worst = max(check.difference or 0.0 for check in checks)
        yield ParityRow(file, name, f"{len(checks)} tensors", worst, checks[0].bound)


def _checked_file(manifest: Manifest, check: Check) -> str:
    """What a check of numbers is about: a graph, or all that have weights."""
    if check.name == "content":
        return MANIFEST_FILE
    if check.name == "moved row":
        return manifest.graphs["mover"].file
    if check.name.startswith(("embeddings", "memory")):
        return manifest.graphs["encoder"].file
    if check.name in ("drift", "range of fp16"):
        return ", ".join(graph.file for graph in manifest.graphs.values() if graph.weights)
    return manifest.graphs["decoder"].file


def _position_bytes(manifest: Manifest, part: str) -> int:
    """Of the decoder's inputs `{part}.{layer}.key|value`, for each of their positions."""
    return sum(
        prod(axis for axis in spec.shape if isinstance(axis, int)) * np.dtype(spec.dtype).itemsize
        for spec in manifest.graphs["decoder"].inputs
        if spec.name.startswith(f"{part}.")
    )


def _summary(inspection: Inspection) -> Table:
    manifest, parity = inspection.manifest, inspection.manifest.parity
    table = Table(title=manifest.name, show_header=False, title_justify="left")
    rows = {
        "kind": f"{manifest.kind}, answers {' and '.join(manifest.task)}",
        "precision": f"{manifest.precision} for {manifest.device}",
        "vocabulary": f"{manifest.vocabulary_size:,}",
        "longest input": f"{manifest.limits.max_input:,} tokens",
        "cache": _cache_summary(inspection),
        "parity": f"{parity.checks} checks, worst difference {parity.worst_difference:.2g}, "
        f"bound {parity.tolerance:.2g}",
        "accepted": "\n".join(parity.accepted) or "nothing beyond its bound",
        "verified on": ", ".join(manifest.verified_on),
        "source": f"{manifest.source.kind} {manifest.source.id} {manifest.source.revision or ''}",
        "built": manifest.built_at,
        "digest": manifest.digest,
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _cache_summary(inspection: Inspection) -> str:
    if not inspection.cache_bytes_per_position:
        return "none"
    target = f"{inspection.cache_bytes_per_position:,} bytes a position"
    source = inspection.cache_bytes_per_source_token
    return f"{target}, {source:,} bytes a token of the source" if source else target


def _interface(graph: GraphInspection) -> Table:
    title = f"{graph.spec.file}: {graph.parameters:,} parameters, {graph.bytes:,} bytes"
    caption = "\n".join(
        f"{what}: {', '.join(f'{name} {count:,}' for name, count in counts.items())}"
        for what, counts in (
            ("parameters", graph.parameters_by_part),
            ("bytes", graph.bytes_by_dtype),
            ("operators", graph.operators),
        )
        if counts
    )
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for column in ("", "name", "type", "shape"):
        table.add_column(column)
    for side, specs in (("in", graph.spec.inputs), ("out", graph.spec.outputs)):
        for name, dtype, shape in _folded(specs):
            table.add_row(side, name, dtype, shape)
    return table


def _parity_table(rows: tuple[ParityRow, ...]) -> Table:
    table = Table(title=PARITY_FILE, title_justify="left")
    for column in ("graph", "check", "shapes"):
        table.add_column(column)
    for column in ("worst difference", "bound"):
        table.add_column(column, justify="right")
    for row in rows:
        found = "none can be told" if row.difference is None else f"{row.difference:.2g}"
        bound = f"{row.bound:.2g}, accepted" if row.accepted else f"{row.bound:.2g}"
        table.add_row(row.file, row.check, row.shape, found, bound)
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
