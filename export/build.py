"""build: from a checkpoint to a verified artefact, which appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from export.artefact_files import describe_files
from export.build_options import BuildOptions
from export.gate_task import Gate, GateTask, run_gate
from export.manifest import MANIFEST_FILE, PARITY_FILE, Manifest
from export.memory import give_back_memory
from export.parity import ParityReport
from export.progress import Steps
from export.source import Source
from export.typed_json import canonical_json
from export.writing_task import WritingTask, write_apart, write_here


class ParityFailure(RuntimeError):
    """The graphs do not compute what the checkpoint does; nothing was left at the output path."""

    def __init__(self, report: ParityReport) -> None:
        super().__init__(f"{len(report.failures)} of {len(report.checks)} checks failed")
        self.report = report


def build(
    source: Source,
    options: BuildOptions,
    steps: Steps,
    gate: Gate = run_gate,
    *,
    writes_apart: bool = False,
) -> Manifest:
    """Builds, verifies and only then publishes an artefact.

    Args:
        gate: `check_artefact` spares a process of its own where that is not wanted.
        writes_apart: whether the graphs are written in a process of their own, which gives back
            all the memory that tracing takes before the gate needs it.

    Raises:
        BuildError: the options do not fit the checkpoint.
        PrecisionError: the precision is not for the checkpoint's kind.
        CheckpointError: the checkpoint cannot be used.
        ExportError: a graph cannot be written.
        ProcessEnded: the process that writes the graphs was killed.
        GateError: the gate could not do its work.
        ParityFailure: a check failed.
    """
    steps.expect(3)
    with _staging(options.output) as directory:
        write = write_apart if writes_apart else write_here
        manifest = write(WritingTask(source, options, directory), steps)
        give_back_memory()  # the gate needs it
        report = gate(
            GateTask(
                directory,
                source.path,
                manifest,
                manifest.parity.tolerance,
                stores_reference=True,
                accepts_drift=options.accept_drift,
            ),
            steps,
        )
        if report.failures:
            raise ParityFailure(report)
        manifest = _seal(directory, manifest, report)
        _publish(directory, options.output)
    return manifest


def _seal(directory: Path, draft: Manifest, report: ParityReport) -> Manifest:
    """Adds what the gate found and writes the manifest."""
    (directory / PARITY_FILE).write_bytes(canonical_json(report.to_json()))
    manifest = replace(
        draft,
        files=describe_files(directory),
        parity=report.summary(),
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
    ).sealed()
    (directory / MANIFEST_FILE).write_bytes(manifest.to_bytes())
    return manifest


@contextmanager
def _staging(output: Path) -> Iterator[Path]:
    """A directory beside the output, so that it can be renamed to it; gone at the end."""
    directory = output.with_name(f".{output.name}.{os.getpid()}.partial")
    directory.mkdir()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _publish(directory: Path, output: Path) -> None:
    """Makes the directory durable and renames it to the output; what was there goes after."""
    for path in (*directory.iterdir(), directory):
        _sync(path)
    replaced = directory.with_suffix(".replaced")
    if output.exists():
        output.rename(replaced)
    directory.rename(output)
    _sync(output.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
