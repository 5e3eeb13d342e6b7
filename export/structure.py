"""The structure of an artefact: its graphs are the ones that its manifest describes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx_ir as ir

from export.manifest import (
    PARITY_FILE,
    REFERENCE_FILE,
    TOKENIZER_FILE,
    GraphSpec,
    Manifest,
    ManifestError,
    TensorSpec,
)

_ROLES = {"encoder": {"encoder"}, "decoder": {"decoder", "mover"}}


def check_structure(directory: Path, manifest: Manifest) -> None:
    """Compares the graphs' files and interfaces with the manifest.

    Raises:
        ManifestError: naming everything that does not fit.
    """
    problems = [
        f"{name} is not listed"
        for name in (TOKENIZER_FILE, REFERENCE_FILE, PARITY_FILE)
        if name not in manifest.files
    ]
    if (roles := set(manifest.graphs)) != _ROLES.get(manifest.kind):
        problems.append(f"kind {manifest.kind} with graphs {', '.join(sorted(roles))}")
    for spec in manifest.graphs.values():
        problems += _graph_problems(directory / spec.file, spec, manifest.opset)
    if problems:
        raise ManifestError("; ".join(problems))


def _graph_problems(path: Path, spec: GraphSpec, opset: int) -> Iterator[str]:
    try:
        model = ir.load(path)
    except Exception as error:  # whatever protobuf and onnx raise on bytes that are no graph
        yield f"{path.name} is not a graph: {error}"
        return
    if model.opset_imports.get("") != opset:
        yield f"{path.name} has opset {model.opset_imports.get('')} instead of {opset}"
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor) and str(tensor.location) not in spec.weights:
            yield f"{path.name} keeps {value.name} in {tensor.location}, which is not its file"
    yield from _interface_problems(path.name, spec.inputs, model.graph.inputs)
    yield from _interface_problems(path.name, spec.outputs, model.graph.outputs)


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
