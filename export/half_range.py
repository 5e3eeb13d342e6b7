"""The range of fp16: layers whose numbers leave it are found in fp32, and refused by name.

A graph in fp16 gives infinity there, or where ONNX Runtime computes a node in fp32, as on a CPU,
nothing that a comparison would see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from export.parity import Check

_LARGEST = torch.finfo(torch.float16).max
_NAME = "range of fp16"


def check_half_range(model: nn.Module, run: Callable[[], object]) -> Iterator[Check]:
    """What every module of a model gives while `run` runs it, its infinities included.

    Yields a failed check for each module that leaves the range, or else one that passed.
    """
    largest = _largest_outputs(model, run)
    for name, value in largest.items():
        if not value <= _LARGEST:  # nor NaN
            note = f"reaches {value:.3g}, and fp16 ends at {_LARGEST:.0f}"
            yield Check(_NAME, name, None, 0.0, note)
    if all(value <= _LARGEST for value in largest.values()):
        name = max(largest, key=largest.__getitem__)
        yield Check(_NAME, "every layer", 0.0, 0.0, f"{name} goes furthest: {largest[name]:.3g}")


def _largest_outputs(model: nn.Module, run: Callable[[], object]) -> dict[str, float]:
    """The largest magnitude that each module has given, by its name."""
    largest: dict[str, float] = {}
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            handle = module.register_forward_hook(partial(_note, largest, name or "the model"))
            hooks.callback(handle.remove)
        run()
    return largest


def _note(
    largest: dict[str, float], name: str, module: nn.Module, inputs: Any, output: Any
) -> None:
    outputs = output if isinstance(output, tuple) else (output,)
    for tensor in outputs:
        if isinstance(tensor, Tensor):
            most = float(tensor.abs().max())
            largest[name] = float(np.maximum(largest.get(name, 0.0), most))  # NaN stays
