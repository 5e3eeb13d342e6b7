"""verify: an artefact by itself, or against the source that it was made from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile

from export.gate import Gate, GateTask, run_gate
from export.manifest import (
    REFERENCE_FILE,
    Manifest,
    ManifestError,
    load_manifest,
    session_settings,
    verify_files,
)
from export.parity import ParityReport
from export.progress import Steps
from export.recipe import recipe_of
from export.reference import replay_decoder, replay_encoder
from export.session import open_session
from export.source import Source
from export.structure import check_structure


def load_verified(directory: Path, steps: Steps) -> Manifest:
    """The manifest of an artefact whose digests and structure are right.

    Raises:
        ManifestError: they are not; the message names each file and reason.
    """
    steps.advance("comparing digests")
    manifest = load_manifest(directory)
    verify_files(directory, manifest)
    check_structure(directory, manifest)
    return manifest


def replay(directory: Path, manifest: Manifest, tolerance: float, steps: Steps) -> ParityReport:
    """Runs the graphs on the inputs that were stored at build.

    Raises:
        ManifestError: there are none that fit the graphs.
        SessionError: a graph does not open.
    """
    steps.advance(f"replaying {REFERENCE_FILE}")
    reference = directory / REFERENCE_FILE
    graph = manifest.graphs[manifest.kind]
    session = open_session(directory / graph.file, session_settings(manifest.device))
    allowed = replace(recipe_of(manifest).tolerance, value=tolerance)
    try:
        checks = tuple(
            replay_encoder(reference, session, allowed)
            if manifest.kind == "encoder"
            else replay_decoder(reference, session, graph, allowed)
        )
    except (BadZipFile, LookupError, RuntimeError, ValueError) as error:
        raise ManifestError(f"{REFERENCE_FILE} cannot be replayed: {error}") from error
    return ParityReport(tolerance=tolerance, checks=checks)


def verify_against(
    source: Source,
    directory: Path,
    manifest: Manifest,
    tolerance: float,
    steps: Steps,
    gate: Gate = run_gate,
) -> ParityReport:
    """The whole gate again.

    Args:
        gate: `check_artefact` spares a process of its own where that is not wanted.

    Raises:
        ManifestError: the source is not the one that the artefact was made from.
        GateError: the gate could not do its work.
    """
    files = source.describe().files
    if different := sorted(
        name
        for name in files.keys() | manifest.source.files.keys()
        if files.get(name) != manifest.source.files.get(name)
    ):
        raise ManifestError(
            f"the artefact was made from another source; these differ: {', '.join(different)}"
        )
    task = GateTask(directory, source.path, manifest, tolerance, stores_reference=False)
    return gate(task, steps)
