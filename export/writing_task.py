"""What is to be written, and by whom: by a process of its own, where memory matters.

PyTorch and ONNX are loaded where the work is done: a process that only waits for it stays small.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from export.build_options import BuildOptions
from export.manifest import Manifest
from export.own_process import ProcessEnded, run_apart
from export.progress import Steps
from export.source import Source


@dataclass(frozen=True)
class WritingTask:
    """A checkpoint, what to make of it, and in which directory."""

    source: Source
    options: BuildOptions
    directory: Path


def write_here(task: WritingTask, steps: Steps) -> Manifest:
    """Writes everything that comes from the checkpoint; the draft of the manifest.

    Raises:
        BuildError, CheckpointError, ExportError, PrecisionError: as `export.writing.write_draft`.
    """
    from export.writing import write_draft

    return write_draft(task, steps)


def write_apart(task: WritingTask, steps: Steps) -> Manifest:
    """The same in a new process, which gives back all the memory that tracing takes.

    Raises:
        ProcessEnded: it was killed.
    """
    try:
        return run_apart(write_here, task, steps)
    except ProcessEnded as error:
        raise ProcessEnded(f"the process that writes the graphs {error}") from None
