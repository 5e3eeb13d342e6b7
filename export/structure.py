"""The structure of an artefact: its graphs are the ones that its manifest describes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from export.artefact import Artefact, read_graph
from export.manifest import (
    PARITY_FILE,
    REFERENCE_FILE,
    TOKENIZER_FILE,
    GraphSpec,
    ManifestError,
    TensorSpec,
)

_ROLES = {
    "encoder": {"encoder"},
    "decoder": {"decoder", "mover"},
    "encoder_decoder": {"encoder", "decoder", "mover"},
}


def check_structure(artefact: Artefact) -> None:
    """Compares the graphs' files and interfaces with the manifest.

    Raises:
        ManifestError: naming everything that does not fit.
    """
    manifest = artefact.manifest
    problems = [
        f"{name} is not listed"
        for name in (TOKENIZER_FILE, REFERENCE_FILE, PARITY_FILE)
        if name not in manifest.files
    ]
    if (roles := set(manifest.graphs)) != _ROLES.get(manifest.kind):
        problems.append(f"kind {manifest.kind} with graphs {', '.join(sorted(roles))}")
    problems += manifest.contradictions()
    for spec in manifest.graphs.values():
        problems += _graph_problems(artefact, spec)
    if problems:
        raise ManifestError("; ".join(problems))


def _graph_problems(artefact: Artefact, spec: GraphSpec) -> Iterator[str]:
    try:
        model = read_graph(spec, artefact.files)
    except ManifestError as error:
        yield str(error)
        return
    opset = model.opset_imports.get("")
    if opset != artefact.manifest.opset:
        yield f"{spec.file} has opset {opset} instead of {artefact.manifest.opset}"
    yield from _interface_problems(spec.file, spec.inputs, model.graph.inputs)
    yield from _interface_problems(spec.file, spec.outputs, model.graph.outputs)


def _interface_problems(
    file: str, wanted: Sequence[TensorSpec], found: Sequence[ir.Value]
) -> Iterator[str]:
    wanted_text = [f"{spec.name} {spec.dtype} {list(spec.shape)}" for spec in wanted]
    found_text = [_describe(value) for value in found]
    if missing := [text for text in wanted_text if text not in found_text]:
        yield f"{file} lacks {', '.join(missing)}"
    if extra := [text for text in found_text if text not in wanted_text]:
        yield f"{file} has {', '.join(extra)} besides"


def _describe(value: ir.Value) -> str:
    axes = [] if value.shape is None else list(value.shape)
    shape = [axis.value if isinstance(axis, ir.SymbolicDim) else axis for axis in axes]
    dtype = "of no type" if value.dtype is None else value.dtype.numpy().name
    return f"{value.name} {dtype} {shape}"
