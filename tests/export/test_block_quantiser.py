"""Graphs whose weights are in blocks: ONNX Runtime computes with what they stand for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from torch import Tensor, nn

from export.block_quantiser import BlockQuantiser
from export.graph import GraphSource, write_graph
from export.manifest import TensorSpec
from tests.export.graphs import open_graph

VOCABULARY, WIDTH = 50, 64
IN_EIGHT = frozenset(("down",))


class Small(nn.Module):
    """A token table, two linear layers of which one has a bias of its own, and a tied head."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.up = nn.Parameter(torch.randn(WIDTH, 96, generator=generator))
        self.down = nn.Parameter(torch.randn(96, WIDTH, generator=generator))
        self.positions = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, generator=generator)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        embedded = self.tokens(inputs[0])
        hidden = torch.relu(embedded @ self.up) @ self.down + embedded @ self.positions
        return embedded, self.head(hidden)


SOURCE = GraphSource(
    role="small",
    module=Small(),
    inputs=(TensorSpec("ids", "int64", ("tokens",)),),
    outputs=(
        TensorSpec("embedded", "float32", ("tokens", WIDTH)),
        TensorSpec("logits", "float32", ("tokens", VOCABULARY)),
    ),
    sizes={"tokens": 3},
)
IDS = np.arange(7, dtype=np.int64) * 7


@pytest.fixture(scope="module", params=[8, 4])
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[BlockQuantiser, ir.Graph, ort.InferenceSession]:
    """The quantiser, the graph as it lies on disk, and a session on it."""
    quantiser = BlockQuantiser(request.param, worst_error=4.0, in_eight_bits=IN_EIGHT)
    directory = tmp_path_factory.mktemp("graph")
    spec = write_graph(replace(SOURCE, module=Small()), directory, quantiser)
    graph = ir.load(directory / spec.file).graph
    return quantiser, graph, open_graph(directory, spec)


def test_every_weight_is_held_in_blocks_and_once(
    written: tuple[BlockQuantiser, ir.Graph, ort.InferenceSession],
) -> None:
    quantiser, graph, _ = written
    held = list(quantiser.read(graph))
    assert sorted(weight.name for weight in held) == [
        "down",
        "tokens.weight",
        "tokens.weight",  # by the look-up and by the product
        "up",
    ]
    bits = {weight.name: weight.weight.parts["values"].shape[2] // 4 for weight in held}
    assert bits == {"down": 8, "tokens.weight": 8, "up": quantiser.bits}
    numbers = {name: value.shape for name, value in graph.initializers.items()}
    assert "positions" in numbers  # as it was
    assert not {"up", "down", "tokens.weight"} & numbers.keys()
    levels = [
        node.attributes["accuracy_level"].as_int()
        for node in graph
        if node.op_type == "MatMulNBits"
    ]
    assert levels == [4, 4, 4]


def test_what_is_read_is_what_was_encoded(
    written: tuple[BlockQuantiser, ir.Graph, ort.InferenceSession],
) -> None:
    quantiser, graph, _ = written
    model = Small()
    sources = {
        "down": model.down.detach().T,
        "up": model.up.detach().T,
        "tokens.weight": model.tokens.weight.detach(),
    }
    for held in quantiser.read(graph):
        source = sources[held.name].contiguous().numpy()
        encoded = quantiser.encode(held.name, source)
        assert encoded is not None
        assert held.weight.parts.keys() == encoded.parts.keys()
        for part, array in encoded.parts.items():
            assert np.array_equal(held.weight.parts[part], array)
        assert np.array_equal(held.weight.restored, encoded.restored)
        error = np.abs(encoded.restored - source) / encoded.steps
        assert 0.1 < error.max() < 2.0


def test_the_runtime_computes_with_the_restored_numbers(
    written: tuple[BlockQuantiser, ir.Graph, ort.InferenceSession],
) -> None:
    """The look-up exactly; products as far as activations in int8 allow."""
    quantiser, graph, session = written
    held = {weight.name: weight.weight.restored for weight in quantiser.read(graph)}
    model = Small()
    embedded, logits = session.run(None, {"ids": IDS})
    assert np.array_equal(embedded, held["tokens.weight"][IDS])
    hidden = np.maximum(embedded @ held["up"].T, 0) @ held["down"].T
    hidden += embedded @ model.positions.detach().numpy()
    wanted = hidden @ held["tokens.weight"].T + model.head.bias.detach().numpy()
    assert np.abs(logits - wanted).max() < 0.03 * wanted.std()
    assert np.abs(logits - wanted).max() > 0


def test_a_row_gives_the_same_bits_alone_and_among_others(
    written: tuple[BlockQuantiser, ir.Graph, ort.InferenceSession],
) -> None:
    _, _, session = written
    _, together = session.run(None, {"ids": IDS})
    for row, index in enumerate(IDS):
        _, alone = session.run(None, {"ids": np.array([index])})
        assert np.array_equal(alone[0], together[row])


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("norm.weight", (64,)),
        ("up.weight", (64, 40)),  # rows that are no whole blocks
        ("embedding.positions.table", (64, 64)),
        ("embedding.types.weight", (2, 64)),
    ],
)
def test_what_is_small_or_no_matrix_of_whole_blocks_stays(
    name: str, shape: tuple[int, ...]
) -> None:
    weight = np.ones(shape, np.float32)
    assert BlockQuantiser(8, 0.5).encode(name, weight) is None
