"""Writing graphs: dynamic axes, names, and nothing in the file but the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from export.decoder_graph import decoder_graph
from export.graph import ExportError, GraphSource, write_graph
from export.manifest import TensorSpec
from tests.checkpoints import DECODER, tiny_checkpoint


class Flatten(nn.Module):
    """Keeps the batch axis dynamic, unless it adds as many rows as it was traced with."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, *inputs: Tensor) -> Tensor:
        return (inputs[0] + torch.ones(self.rows, 2, 2)).flatten(1)


class Constant(nn.Module):
    """An output that forgets the input's axis."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0].sum() + torch.zeros(3)


def _source(module: nn.Module, output: TensorSpec) -> GraphSource:
    return GraphSource(
        role="sample",
        module=module,
        inputs=(TensorSpec("states", "float32", ("batch", 2, 2)),),
        outputs=(output,),
        sizes={"batch": 3},
    )


_ROWS = TensorSpec("rows", "float32", ("batch", 4))


def test_declared_axes_are_dynamic_and_named(tmp_path: Path) -> None:
    spec = write_graph(_source(Flatten(rows=1), _ROWS), tmp_path)
    graph = ir.load(tmp_path / spec.file).graph
    assert [str(axis) for axis in graph.inputs[0].shape or ()] == ["batch", "2", "2"]
    assert [str(axis) for axis in graph.outputs[0].shape or ()] == ["batch", "4"]


def test_a_frozen_input_axis_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"(?s)static shape of 3 .* axis batch of states"):
        write_graph(_source(Flatten(rows=3), _ROWS), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_frozen_output_axis_is_named(tmp_path: Path) -> None:
    output = TensorSpec("rows", "float32", ("batch",))
    with pytest.raises(ExportError, match="axis batch of rows is frozen at 3"):
        write_graph(_source(Constant(), output), tmp_path)


def test_equal_weights_keep_names_of_their_own(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(replace(DECODER, decoder_layers=1))
    for tensor in checkpoint.tensors.values():
        tensor.fill_(1.0)
    spec = write_graph(decoder_graph(checkpoint.build()), tmp_path)
    model = ir.load(tmp_path / spec.file)
    floats = {name for name, value in model.graph.initializers.items() if "." in name}
    assert floats == set(checkpoint.tensors) | {"rotary.cos", "rotary.sin"}
    operators = {node.op_type for node in model.graph}
    assert "Transpose" not in operators
    assert len([node for node in model.graph if node.op_type == "Reshape"]) <= 3
    assert not model.metadata_props
    assert all(not node.metadata_props and not node.doc_string for node in model.graph)
    assert (
        str(Path(__file__).parent.parent.parent).encode() not in (tmp_path / spec.file).read_bytes()
    )
