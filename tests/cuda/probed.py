"""What `tests.cuda.probe` finds: where nodes were put, and what each phase asked of CUDA."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

SLOTS, CAPACITY, CHUNK = 8, 64, 16
ROWS = 3  # that a decode step computes
TEXTS = [[5] * length for length in (3, 17, 9)]


class Phase(StrEnum):
    """One run of a graph; END is what follows the last."""

    ENCODE = "encode"
    PREFILL = "prefill"
    DECODE = "decode"
    MOVE = "move"
    END = "end"


@dataclass(frozen=True)
class Asked:
    """What one phase asked of CUDA.

    Attributes:
        copies: `to_device`, `to_host` or `on_device`, and how many bytes, in order.
        allocations: bytes of each.
    """

    copies: tuple[tuple[str, int], ...]
    allocations: tuple[int, ...]
    launches: int
    waits: int

    @classmethod
    def of(cls, lines: list[list[str]]) -> Self:
        return cls(
            copies=tuple((line[1], int(line[2])) for line in lines if line[0] == "copy"),
            allocations=tuple(int(line[1]) for line in lines if line[0] == "allocate"),
            launches=sum(line[0] == "launch" for line in lines),
            waits=sum(line[0] == "synchronise" for line in lines),
        )

    def copied(self, direction: str) -> list[int]:
        """Bytes of each copy in a direction."""
        return [size for way, size in self.copies if way == direction]


@dataclass(frozen=True)
class Probed:
    """One artefact.

    Attributes:
        placed: graph -> provider -> operator -> how many nodes.
        asked: what each phase of the work asked.
    """

    placed: dict[str, dict[str, dict[str, int]]]
    asked: dict[Phase, Asked]


def read_probe(output: str, trace: Path) -> Probed:
    """From what the probe printed, and the trace of what it did."""
    return Probed(json.loads(output.splitlines()[-1]), _read_trace(trace))


def _read_trace(path: Path) -> dict[Phase, Asked]:
    phases: dict[Phase, list[list[str]]] = {}
    lines: list[list[str]] = []
    for line in map(str.split, path.read_text().splitlines()):
        if line[0] == "phase":
            lines = phases[Phase(line[1])] = []
        else:
            lines.append(line)
    return {phase: Asked.of(lines) for phase, lines in phases.items()}
