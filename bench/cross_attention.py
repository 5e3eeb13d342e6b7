"""What attending to sources costs a decode step, by how many tokens a slot could hold.

    python -m bench.cross_attention [--seconds 1]

One layer in fp32 on one thread: a token of each of 8 rows attends, with 8 heads of 64, to sources
of 3 to 100 tokens. They are read where they lie, as every artefact for formerd does; copied
together first, as one built with `--standard-ops` does; or as whole slots by the ONNX standard's
operator. Slots of 100 tokens hold no more than the longest source: the last way then costs what it
would if somebody had copied the sources together before.

Shapes: `B` rows, `H` heads, `D` head width, `C` capacity of a slot in source tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

import click
import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.onnx import ops

from export.cross_attention import CrossAttention, StandardCrossAttention
from export.decoder_run import bind_in_place, bind_input
from export.graph import GraphSource, write_graph
from export.manifest import TensorSpec
from model.cache import LayerCache

HEADS, WIDTH = 8, 64
LENGTHS = (3, 17, 31, 45, 59, 73, 87, 100)  # of the sources
CAPACITIES = (100, 128, 512, 1024, 4096)
_FEWEST_RUNS = 10

Attend = Callable[[Tensor, Tensor, Tensor, LayerCache], tuple[Tensor, ...]]
Array = NDArray[np.float32]


def in_place(
    query: Tensor, lengths: Tensor, longest: Tensor, memory: LayerCache
) -> tuple[Tensor, ...]:
    """Each source where it lies; the slots come out as they were."""
    attend = CrossAttention.of_step(lengths, longest, HEADS, scale=None)
    return attend(query, memory), *attend.presents[0]


def copied_together(
    query: Tensor, lengths: Tensor, longest: Tensor, memory: LayerCache
) -> tuple[Tensor, ...]:
    """As many tokens of each slot as the longest source has, gathered before they are read."""
    attend = StandardCrossAttention.of_step(lengths, longest, memory, scale=None)
    return (attend(query, memory),)


def whole_slots(
    query: Tensor, lengths: Tensor, longest: Tensor, memory: LayerCache
) -> tuple[Tensor, ...]:
    """Every token that a slot could hold; the operator is told which ones count."""
    query = query.transpose(1, 2)  # [B, H, 1, D]
    mixed = ops.symbolic(
        "Attention",
        (query, *memory, None, None, None, lengths.long()),
        dtype=query.dtype,
        shape=query.shape,
        version=24,
    )
    return (mixed.transpose(1, 2),)


WAYS: dict[str, Attend] = {
    "in place": in_place,
    "copied together": copied_together,
    "whole slots": whole_slots,
}


@dataclass(frozen=True)
class Step:
    """What a step reads; it must outlive what is bound to it.

    Attributes:
        query: `[B, 1, H, D]`.
        key, value: `[B, H, C, D]`.
        lengths: `[B]`, of the sources.
        longest: `[1]`.
    """

    query: Array
    key: Array
    value: Array
    lengths: NDArray[np.int32]
    longest: NDArray[np.int32]

    @classmethod
    def random(cls, capacity: int) -> Self:
        generator = np.random.default_rng(capacity)
        shapes = ((1, HEADS, WIDTH), (HEADS, capacity, WIDTH), (HEADS, capacity, WIDTH))
        query, key, value = (
            generator.standard_normal((len(LENGTHS), *shape), dtype=np.float32) for shape in shapes
        )
        lengths = np.array(LENGTHS, dtype=np.int32)
        return cls(query, key, value, lengths, lengths.max(keepdims=True))


class Layer(nn.Module):
    """One way to attend, as a graph's module."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self._attend = attend

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        query, lengths, longest, key, value = inputs
        return self._attend(query, lengths, longest, LayerCache(key, value))


def open_layer(attend: Attend, directory: Path) -> ort.InferenceSession:
    """Writes the graph to `directory` and opens it, with one thread."""
    slots = ("batch", HEADS, "capacity", WIDTH)
    mixed = TensorSpec("mixed", "float32", ("batch", 1, HEADS, WIDTH))
    presents = [TensorSpec(f"present.{half}", "float32", slots) for half in ("key", "value")]
    source = GraphSource(
        role="layer",
        module=Layer(attend),
        inputs=(
            TensorSpec("query", "float32", ("batch", 1, HEADS, WIDTH)),
            TensorSpec("source_lengths", "int32", ("batch",)),
            TensorSpec("total_source_length", "int32", (1,)),
            TensorSpec("cross.key", "float32", slots),
            TensorSpec("cross.value", "float32", slots),
        ),
        outputs=(mixed, *presents) if attend is in_place else (mixed,),
        sizes={"batch": 2, "capacity": 5},
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # errors
    return ort.InferenceSession(directory / write_graph(source, directory).file, options)


def bind(session: ort.InferenceSession, step: Step) -> ort.IOBinding:
    """What a run reads; slots that come out again do so where they are."""
    binding = session.io_binding()
    binding.bind_cpu_input("query", step.query)
    binding.bind_cpu_input("source_lengths", step.lengths)
    binding.bind_cpu_input("total_source_length", step.longest)
    binding.bind_output("mixed", "cpu")  # the first of the outputs
    outputs = {each.name for each in session.get_outputs()}
    for name, half in (("key", step.key), ("value", step.value)):
        if f"present.{name}" in outputs:
            bind_in_place(binding, f"cross.{name}", f"present.{name}", half)
        else:
            bind_input(binding, f"cross.{name}", half)
    return binding


def quickest(run: Callable[[], object], seconds: float) -> float:
    """Seconds of the quickest of many runs, which other work on the machine disturbs least."""
    best, runs, end = inf, 0, time.perf_counter() + seconds
    while runs < _FEWEST_RUNS or time.perf_counter() < end:
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
        runs += 1
    return best


@click.command()
@click.option("--seconds", default=1.0, show_default=True, help="How long each figure is sought.")
def main(seconds: float) -> None:
    """Measures and prints a table, in microseconds a layer and step."""
    table = Table("read", *(f"slots of {capacity}" for capacity in CAPACITIES))
    for label, attend in WAYS.items():
        with TemporaryDirectory() as directory:
            session = open_layer(attend, Path(directory))
        figures = [measure(session, capacity, seconds) for capacity in CAPACITIES]
        table.add_row(label, *(f"{1e6 * figure:,.0f}" for figure in figures))
    Console().print(table)


def measure(session: ort.InferenceSession, capacity: int, seconds: float) -> float:
    """Seconds of a step over slots of a capacity."""
    step = Step.random(capacity)
    binding = bind(session, step)
    return quickest(lambda: session.run_with_iobinding(binding), seconds)


if __name__ == "__main__":
    main()
