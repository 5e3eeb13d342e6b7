"""The floor under a decode step: its weights have to come from memory once.

    python -m bench.memory_ceiling

prints the bytes a second that all processors together read from memory.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx_ir as ir
import torch

from bench.results import MemoryCeiling
from server.processors import usable_processors

_BYTES = 1 << 30  # far beyond any cache
_COLUMNS = 4096
_REPEATS = 8
# Operators that read a few rows of a table, not all of it.
_LOOKUPS = frozenset(["Gather", "GatherBlockQuantized", "GroupQueryAttention", "Unsqueeze"])


def memory_ceiling(artefacts: Mapping[str, Path]) -> MemoryCeiling:
    """Measured in a process of its own, so that nothing of it stays here."""
    command = [sys.executable, "-m", __name__]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return MemoryCeiling(
        float(printed), {name: weight_bytes(path) for name, path in artefacts.items()}
    )


def weight_bytes(artefact: Path) -> int:
    """Bytes of the weights that a decoder's step reads whole."""
    return sum(
        value.const_value.nbytes
        for value in ir.load(artefact / "decoder.onnx").graph.initializers.values()
        if value.const_value is not None
        and any(use.node.op_type not in _LOOKUPS for use in value.uses())
    )


def read_bandwidth() -> float:
    """Bytes a second: the best of several tries of several ways to read everything once."""
    torch.set_num_threads(usable_processors())
    values = torch.ones(_BYTES // 4)
    matrix, vector = values.view(-1, _COLUMNS), torch.ones(_COLUMNS)
    ways: tuple[Callable[[], object], ...] = (values.sum, lambda: torch.mv(matrix, vector))
    fastest = math.inf
    for _ in range(_REPEATS):
        for read in ways:
            began = time.perf_counter()
            read()
            fastest = min(fastest, time.perf_counter() - began)
    return _BYTES / fastest


if __name__ == "__main__":
    print(read_bandwidth())
