"""What the gate and the builder ask of whatever stores weights in few bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray


@dataclass(frozen=True)
class QuantisedWeight:
    """A weight in the form in which a graph holds it.

    Attributes:
        parts: the graph's initializers for it, by the last part of their names.
        restored: fp32 `[out, in]`, the numbers that they stand for.
        steps: how far neighbouring numbers of the form lie apart, broadcast to `restored`.
    """

    parts: dict[str, NDArray[Any]]
    restored: NDArray[np.float32]
    steps: NDArray[np.float32]


@dataclass(frozen=True)
class HeldWeight:
    """A weight that a node of a graph reads.

    Attributes:
        name: the parameter's.
        initializers: the names of its parts in the graph.
    """

    name: str
    initializers: tuple[str, ...]
    weight: QuantisedWeight


class Quantiser(Protocol):
    """Stores weights in few bits, and reads them again."""

    @property
    def worst_error(self) -> float:
        """The most by which a restored number differs from its source, in steps."""

    def encode(self, name: str, weight: NDArray[np.float32]) -> QuantisedWeight | None:
        """A parameter `[out, in]` in few bits; None for one that stays as it is.

        The same numbers give the same bits on every machine.
        """

    def rewrite(self, graph: ir.Graph) -> None:
        """Replaces the weights of a traced graph and the nodes that read them, in place."""

    def read(self, graph: ir.Graph) -> Iterator[HeldWeight]:
        """What the nodes of a rewritten graph read, a weight that two nodes read twice."""
