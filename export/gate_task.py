"""What the gate is asked to check, and how it is asked: in a process of its own.

PyTorch and ONNX are loaded in that process alone: the one that waits for it stays small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from export.manifest import Manifest
from export.own_process import ProcessEnded, run_apart
from export.parity import ParityReport
from export.progress import Steps

Gate = Callable[["GateTask", Steps], ParityReport]  # `run_gate`, or `check_artefact`


class GateError(RuntimeError):
    """The gate could not do its work; nothing is known about the artefact."""


@dataclass(frozen=True)
class GateTask:
    """What to check.

    Attributes:
        directory: holds the graphs.
        checkpoint: the directory or .gguf file that they were made from.
        manifest: describes the graphs; a draft while building.
        tolerance: in the unit of the recipe's own.
        stores_reference: whether to write reference.npz; what is there is compared otherwise.
        accepts_drift: whether what has moved too far from fp32 passes, and is reported.
    """

    directory: Path
    checkpoint: Path
    manifest: Manifest
    tolerance: float
    stores_reference: bool
    accepts_drift: bool = False


def run_gate(task: GateTask, steps: Steps) -> ParityReport:
    """Runs the gate in a new process, which ends with this call, whatever ends it.

    Raises:
        GateError: the process failed or was killed.
    """
    try:
        return run_apart(_check, task, steps)
    except ProcessEnded as error:
        raise GateError(f"the gate's process {error}") from None
    except Exception as error:  # whatever went wrong there
        raise GateError(f"{type(error).__name__}: {error}") from error


def _check(task: GateTask, steps: Steps) -> ParityReport:
    from export.gate import check_artefact

    return check_artefact(task, steps)
