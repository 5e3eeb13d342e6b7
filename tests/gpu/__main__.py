"""The check of a GPU: every experiment in a process of its own, results as JSON.

`make test-gpu`. What it takes is made on the CPU first, unless it is there. Without a GPU nothing
is checked, and the reason is the result.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from export.progress import ShownSteps
from export.source import resolve_source
from tests.gpu.prepare import DECODER, ENCODER, prepare
from tests.gpu.run import EXPERIMENTS

_EXPERIMENT_SECONDS = 120


@click.command()
@click.option("--python", required=True, help="An interpreter with ONNX Runtime's GPU wheel.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    required=True,
    help="Where artefacts and references are, or come to be; results.json too.",
)
def main(python: str, directory: Path) -> None:
    """Checks a GPU; exits with 1 where a criterion does not hold."""
    device = _run(python)
    results: dict[str, Any] = {"device": device}
    directory.mkdir(parents=True, exist_ok=True)
    if "skipped" in device:
        _write(directory, results)
        click.echo(f"skipped: {device['skipped']}")
        return
    if not (directory / "references.npz").exists():
        with ShownSteps() as steps:
            prepare(directory, resolve_source(ENCODER), resolve_source(DECODER), steps)
    for name in EXPERIMENTS:
        results[name] = _run(python, str(directory), name)
        _write(directory, results)
        click.echo(_line(name, results[name]))
    if not all(results[name].get("passed") for name in EXPERIMENTS):
        sys.exit(1)


def _run(python: str, *arguments: str) -> dict[str, Any]:
    """What `tests.gpu.run` prints, or how it ended."""
    command = [python, "-m", "tests.gpu.run", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_EXPERIMENT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"passed": False, "error": f"not done after {_EXPERIMENT_SECONDS} s"}
    if done.returncode:
        return {"passed": False, "error": done.stderr[-2000:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _line(name: str, found: dict[str, Any]) -> str:
    if found.get("passed"):
        return f"passed  {name}"
    failed = [criterion for criterion, holds in found.get("criteria", {}).items() if not holds]
    return f"FAILED  {name}: {'; '.join(failed) or found['error'].strip().splitlines()[-1]}"


def _write(directory: Path, results: dict[str, Any]) -> None:
    (directory / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
