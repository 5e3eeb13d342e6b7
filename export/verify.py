"""verify: an artefact by itself, or against the source that it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from export.artefact import Artefact
from export.gate_task import Gate, GateTask, run_gate
from export.manifest import PARITY_FILE, REFERENCE_FILE, ManifestError
from export.numbers import numbers_of
from export.parity import Check, ParityReport
from export.progress import Steps
from export.recipe import recipe_of
from export.reference import read_reference
from export.session import SessionError
from export.source import Source
from export.structure import check_structure


def open_verified(directory: Path, steps: Steps) -> Artefact:
    """An artefact whose digests and structure are right.

    Raises:
        ManifestError: they are not; the message names each file and reason.
    """
    steps.advance("comparing digests")
    artefact = Artefact.open(directory)
    check_structure(artefact)
    return artefact


def replay(artefact: Artefact, tolerance: float, steps: Steps) -> ParityReport:
    """Runs the graphs on the inputs that were stored at build.

    Raises:
        ManifestError: there are none that fit the graphs.
        SessionError: a graph does not open.
    """
    steps.advance(f"replaying {REFERENCE_FILE}")
    reference = read_reference(artefact.files[REFERENCE_FILE])
    allowed = replace(recipe_of(artefact.manifest).tolerance, value=tolerance)
    try:
        checks = tuple(numbers_of(artefact).replay(reference, allowed))
    except SessionError:
        raise
    except (LookupError, RuntimeError, ValueError) as error:
        raise ManifestError(f"{REFERENCE_FILE} cannot be replayed: {error}") from error
    return ParityReport(tolerance=tolerance, checks=checks)


def verify_against(
    source: Source,
    directory: Path,
    artefact: Artefact,
    tolerance: float,
    steps: Steps,
    gate: Gate = run_gate,
) -> ParityReport:
    """The whole gate again, and whether the stored report says what it finds.

    Args:
        gate: `check_artefact` spares a process of its own where that is not wanted.

    Raises:
        ManifestError: the source is not the one that the artefact was made from.
        GateError: the gate could not do its work.
    """
    manifest, files = artefact.manifest, source.describe().files
    if different := sorted(
        name
        for name in files.keys() | manifest.source.files.keys()
        if files.get(name) != manifest.source.files.get(name)
    ):
        raise ManifestError(
            f"the artefact was made from another source; these differ: {', '.join(different)}"
        )
    task = GateTask(
        directory,
        source.path,
        manifest,
        tolerance,
        stores_reference=False,
        accepts_drift=bool(manifest.parity.accepted),
    )
    report = gate(task, steps)
    return replace(report, checks=(*report.checks, *_compare_reports(artefact, report)))


def _compare_reports(artefact: Artefact, found: ParityReport) -> Iterator[Check]:
    """The stored report beside the one of now; numbers may differ with the machine."""
    stored = ParityReport.from_bytes(artefact.files[PARITY_FILE][:])
    agreements = {
        "the same checks": _names(stored) == _names(found),
        "the same traced tensors": stored.traced == found.traced,
        "the same computed tables": stored.computed == found.computed,
        "the same unused tensors": stored.unused == found.unused,
        "the manifest's summary": stored.summary() == artefact.manifest.parity,
        "no failure": not stored.failures,
    }
    for agreement, holds in agreements.items():
        yield Check("stored report", agreement, 0.0 if holds else None, 0.0)


def _names(report: ParityReport) -> list[tuple[str, str]]:
    return [
        (check.name, check.shape) for check in report.checks if check.name != "stored reference"
    ]
