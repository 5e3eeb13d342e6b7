"""From a module to a graph on disk: traced, named, stripped of everything that is not the model."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from onnx_ir.passes import common as passes
from torch import Tensor, nn

from export.manifest import GraphSpec, TensorSpec
from export.quantiser import Quantiser

OPSET = 24
IR_VERSION = 12  # the one that came with the operator set
PRODUCER = "formerd"


class ExportError(RuntimeError):
    """A model that cannot become a graph; the message says which part."""


@dataclass(frozen=True)
class GraphSource:
    """A graph to be.

    Attributes:
        role: `encoder`, `decoder`; also the stem of its files.
        module: takes the inputs in order and returns the outputs in order. Its parameters and
            buffers keep their names, the prefix `model.` of the transformer removed.
        sizes: the size of each dynamic axis while tracing; never 0 or 1, which PyTorch would
            take for constants.
    """

    role: str
    module: nn.Module
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sizes: dict[str, int]


def write_graph(
    source: GraphSource, directory: Path, quantiser: Quantiser | None = None
) -> GraphSpec:
    """Traces and writes `{role}.onnx` and `{role}.data`.

    Args:
        quantiser: stores the weights in few bits; None to store them as they are.

    Raises:
        ExportError: an axis that must be dynamic is not, or PyTorch cannot trace the module.
    """
    model = _trace(source)
    _check_axes(model.graph, source)
    _name_initializers(model.graph, source.module)
    _drop_reshape_round_trips(model.graph)
    _fold_numbers(model.graph)
    if quantiser is not None:
        quantiser.rewrite(model.graph)
    _strip(model, source)
    file, weights = f"{source.role}.onnx", f"{source.role}.data"
    ir.save(model, directory / file, external_data=weights, size_threshold_bytes=0)
    return GraphSpec(file=file, weights=(weights,), inputs=source.inputs, outputs=source.outputs)


def _trace(source: GraphSource) -> ir.Model:
    axes = tuple(
        {i: torch.export.Dim.DYNAMIC for i, size in enumerate(spec.shape) if isinstance(size, str)}
        for spec in source.inputs
    )
    try:
        with _quiet():
            program = torch.onnx.export(
                source.module.eval(),
                tuple(_example(spec, source.sizes) for spec in source.inputs),
                input_names=[spec.name for spec in source.inputs],
                output_names=[spec.name for spec in source.outputs],
                dynamic_shapes=(axes,),
                opset_version=OPSET,
                dynamo=True,
                optimize=False,  # it merges equal tensors, which would then have one name
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = _name_axes(str(error.__cause__ or error), source)
        raise ExportError(f"the {source.role} graph cannot be traced: {reason}") from error
    assert program is not None
    return program.model


def _name_axes(reason: str, source: GraphSource) -> str:
    """PyTorch's reason, in which it names an axis by the numbers of the input and the axis."""

    def name(match: re.Match[str]) -> str:
        spec = source.inputs[int(match[1])]
        return f"axis {spec.shape[int(match[2])]} of {spec.name}"

    return re.sub(r"inputs\['inputs'\]\[(\d+)\]\.shape\[(\d+)\]", name, reason)


def _example(spec: TensorSpec, sizes: dict[str, int]) -> Tensor:
    shape = [size if isinstance(size, int) else sizes[size] for size in spec.shape]
    return torch.from_numpy(np.zeros(shape, dtype=spec.dtype))


def _check_axes(graph: ir.Graph, source: GraphSource) -> None:
    """Every declared axis must have stayed dynamic."""
    values = dict(
        zip((*source.inputs, *source.outputs), (*graph.inputs, *graph.outputs), strict=True)
    )
    frozen = [
        f"axis {size} of {spec.name} is frozen at {value.shape[i]}"
        for spec, value in values.items()
        for i, size in enumerate(spec.shape)
        if isinstance(size, str) and value.shape is not None and isinstance(value.shape[i], int)
    ]
    if frozen:
        raise ExportError(f"the {source.role} graph is not dynamic: " + "; ".join(frozen))


def _name_initializers(graph: ir.Graph, module: nn.Module) -> None:
    """Gives each weight the model's name for it; a tied one gets the first of its names."""
    tensors: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    tensors |= dict(module.named_buffers(remove_duplicate=False))
    first = {id(tensor): name for name, tensor in reversed(tensors.items())}
    for value in list(graph.initializers.values()):
        if value.name in tensors:
            value.name = first[id(tensors[value.name])].removeprefix("model.")


def _drop_reshape_round_trips(graph: ir.Graph) -> None:
    """Removes reshapes that only undo the one before: heads are split and joined again around
    operators that take them joined."""
    for node in graph:
        if node.op_type != "Reshape":
            continue
        before = node.inputs[0].producer() if node.inputs[0] is not None else None
        if before is None or before.op_type != "Reshape":
            continue
        original, output = before.inputs[0], node.outputs[0]
        if original is not None and original.shape == output.shape and not output.is_graph_output():
            ir.convenience.replace_all_uses_with(output, original)


def _fold_numbers(graph: ir.Graph) -> None:
    """Casts and reshapes single numbers now; on CUDA some would be cast there, and read back."""
    for node in graph:
        if (folded := _folded(node)) is not None:
            constant = ir.node("Constant", [], {"value": ir.Tensor(folded)})
            ir.convenience.replace_nodes_and_values(
                graph, node, [node], [constant], node.outputs, constant.outputs
            )


def _folded(node: ir.Node) -> NDArray[Any] | None:
    """What a node makes of a single number; None where it does anything else."""
    numbers = [
        None if value is None else ir.convenience.get_const_tensor(value) for value in node.inputs
    ]
    if not numbers or numbers[0] is None or numbers[0].size != 1:
        return None
    number: NDArray[Any] = numbers[0].numpy()
    match node.op_type:
        case "Cast":
            return number.astype(ir.DataType(node.attributes["to"].as_int()).numpy())
        case "CastLike" if node.inputs[1] is not None and node.inputs[1].dtype is not None:
            return number.astype(node.inputs[1].dtype.numpy())
        case "Reshape" if numbers[1] is not None:
            return number.reshape(numbers[1].numpy())
    return None


def _strip(model: ir.Model, source: GraphSource) -> None:
    """Leaves only what the computation and its interface need; no paths, traces or tool names."""
    ir.passes.Sequential(
        passes.CommonSubexpressionEliminationPass(),
        passes.IdentityEliminationPass(),
        passes.RemoveUnusedNodesPass(),
        passes.RemoveUnusedOpsetsPass(),
        passes.ClearMetadataAndDocStringPass(),
    )(model)
    graph = model.graph
    for node in graph:
        for value in node.outputs:
            value.shape = value.type = None  # of intermediate values: the runtime infers them
    for spec, value in zip(
        (*source.inputs, *source.outputs), (*graph.inputs, *graph.outputs), strict=True
    ):
        declared = graph_value(spec)
        value.shape, value.type = declared.shape, declared.type
    graph.name = source.role
    model.ir_version = IR_VERSION
    model.producer_name = PRODUCER
    model.producer_version = model.domain = None
    model.model_version = None


def graph_value(spec: TensorSpec) -> ir.Value:
    """An input or output of a graph; a dynamic axis keeps its name."""
    number = ir.TensorType(ir.DataType.from_numpy(np.dtype(spec.dtype)))
    return ir.Value(name=spec.name, shape=ir.Shape(spec.shape), type=number)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the exporter's remarks about itself off the terminal."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
