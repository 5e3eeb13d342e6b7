"""python -m export verify."""

from __future__ import annotations

from pathlib import Path

import click

from export.commands.options import SOURCE_HELP
from export.commands.output import print_report
from export.exit_codes import FAILED
from export.progress import ShownSteps
from export.source import resolve_source
from export.verify import open_verified, replay, verify_against


@click.command(name="verify", epilog=SOURCE_HELP)
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--source", metavar="SOURCE", help="Run the whole gate again, against SOURCE.")
@click.option("--revision", metavar="R", help="Branch, tag or commit of a hub id.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, min_open=True),
    metavar="T",
    help="Largest difference that passes.  [default: what it was built with]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    directory: Path,
    source: str | None,
    revision: str | None,
    tolerance: float | None,
    as_json: bool,
) -> None:
    """Verifies an artefact.

    Alone: its digests, its structure, and the outputs that were stored when it was built. With
    --source: everything that build checks.
    """
    with ShownSteps() as steps:
        steps.expect(2)
        artefact = open_verified(directory, steps)
        manifest = artefact.manifest
        bound = tolerance or manifest.parity.tolerance
        if source is None:
            report = replay(artefact, bound, steps)
        else:
            origin = resolve_source(source, revision)
            report = verify_against(origin, directory, artefact, bound, steps)
    print_report(report, as_json, {"digest": manifest.digest})
    if report.failures:
        raise click.exceptions.Exit(FAILED)
    if source is None and not as_json:
        click.echo(
            "digests, structure and the stored reference outputs agree; that is all that was "
            "checked: --source compares with the checkpoint"
        )
