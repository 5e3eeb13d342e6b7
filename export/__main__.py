"""python -m export: build, verify and inspect artefacts, and look inside a model."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console

from export.artefact import Artefact
from export.attention_map import AttentionError, AttentionKind, attention_map
from export.build import BuildError, BuildOptions, ParityFailure, build
from export.gate import GateError
from export.graph import ExportError
from export.heatmap import draw
from export.inspection import inspect_artefact, render
from export.lstm_comparison import compare_with_lstm, render_comparison
from export.manifest import Device, ManifestError, Precision
from export.parity import ParityReport
from export.progress import ShownSteps
from export.recipe import RecipeError, default_precision
from export.session import SessionError
from export.source import SourceError, default_name, resolve_source
from export.verify import open_verified, replay, verify_against
from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint
from model.config import PoolingMode, TransformerConfig

_USAGE_ERRORS = (SourceError, BuildError, RecipeError, AttentionError)
_FAILURES = (CheckpointError, ExportError, GateError, ManifestError, SessionError, OSError)
FAILED, USAGE, INTERRUPTED, TERMINATED = 1, 2, 130, 143

_SOURCE_HELP = """SOURCE is a directory with config.json and *.safetensors, a .gguf file,
package:NAME for a checkpoint that an installed Python package carries, or a hub id org/name."""


def _choice(values: type[StrEnum]) -> click.Choice[str]:
    """The members' values; click would show their names."""
    return click.Choice([value.value for value in values])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Turns a transformer checkpoint into a verified ONNX artefact.

    Exit codes: 0 done, 1 a check failed or the checkpoint cannot be used, 2 wrong usage,
    130 interrupted.
    """


@cli.command(name="build", epilog=_SOURCE_HELP)
@click.argument("source")
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="The artefact's directory."
)
@click.option("--name", help="What clients call the model.  [default: the last part of SOURCE]")
@click.option(
    "--device",
    type=_choice(Device),
    default=Device.CPU.value,
    show_default=True,
    help="What the artefact is to run on.",
)
@click.option(
    "--precision",
    type=_choice(Precision),
    help="The dtype of the weights.  [default: fp32 for cpu, fp16 for cuda]",
)
@click.option(
    "--pooling",
    type=_choice(PoolingMode),
    help="How token states become one vector.  [default: what the checkpoint says]",
)
@click.option(
    "--max-length",
    type=int,
    metavar="N",
    help="Longest text, or positions of a cache slot, in tokens.  [default: the model's own]",
)
@click.option("--revision", metavar="R", help="Branch, tag or commit of a hub id.")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, min_open=True),
    metavar="T",
    help="Largest difference from PyTorch that passes.  [default: the precision's own]",
)
@click.option(
    "--standard-ops",
    is_flag=True,
    help="Use operators of the ONNX standard alone, for other runtimes.",
)
@click.option(
    "--accept-drift",
    is_flag=True,
    help="Write what is further from fp32 than the precision should be; the artefact says so.",
)
@click.option("--force", is_flag=True, help="Replace an artefact that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def build_command(
    source: str,
    output: Path,
    name: str | None,
    device: str,
    precision: str | None,
    pooling: str | None,
    revision: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Builds an artefact from SOURCE.

    Its graphs are compared with the checkpoint, weight by weight, and with PyTorch. Only where
    everything agrees does the artefact appear at the output path.
    """
    wanted = BuildOptions(
        output=output,
        name=name or default_name(source),
        device=Device(device),
        precision=Precision(precision) if precision else default_precision(Device(device)),
        pooling=PoolingMode(pooling) if pooling else None,
        **options,
    )
    try:
        with ShownSteps() as steps:
            origin = resolve_source(source, revision)
            manifest = build(origin, wanted, steps, writes_apart=True)
    except ParityFailure as failure:
        _report(failure.report, as_json, {"output": None})
        click.echo(f"nothing was written to {output}", err=True)
        raise click.exceptions.Exit(FAILED) from None
    if as_json:
        _print_json({"output": str(output), "manifest": json.loads(manifest.to_bytes())})
        return
    parity = manifest.parity
    click.echo(
        f"{output}: {manifest.name}, {manifest.kind}, {manifest.precision} for {manifest.device}"
    )
    click.echo(
        f"{parity.checks} checks passed, worst difference {parity.worst_difference:.2g}, "
        f"bound {parity.tolerance:.2g}"
    )
    for check in parity.accepted:
        click.echo(f"ACCEPTED {check}", err=True)
    click.echo(manifest.digest)


@cli.command(name="verify", epilog=_SOURCE_HELP)
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
def verify_command(
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
    _report(report, as_json, {"digest": manifest.digest})
    if report.failures:
        raise click.exceptions.Exit(FAILED)
    if source is None and not as_json:
        click.echo(
            "digests, structure and the stored reference outputs agree; that is all that was "
            "checked: --source compares with the checkpoint"
        )


@cli.command(name="inspect")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option(
    "--compare-lstm", is_flag=True, help="Count parameters beside a 6-layer LSTM of equal width."
)
def inspect_command(directory: Path, as_json: bool, compare_lstm: bool) -> None:
    """Shows what an artefact is: graphs, parameters, bytes, operators, cache, parity."""
    inspection = inspect_artefact(Artefact.open(directory))
    config = TransformerConfig.from_json(inspection.manifest.config)
    comparison = compare_with_lstm(config) if compare_lstm else None
    if as_json:
        more = {"lstm": comparison.to_json()} if comparison else {}
        _print_json(inspection.to_json() | more)
        return
    console = Console()
    console.print(render(inspection))
    if comparison:
        console.print(render_comparison(comparison))


@cli.command(name="attention", epilog=_SOURCE_HELP)
@click.argument("source")
@click.option("--text", required=True, help="What the model reads.")
@click.option("--target", help="What an encoder-decoder has written: shows its cross-attention.")
@click.option(
    "--kind",
    type=_choice(AttentionKind),
    help="Whose attention.  [default: cross-attention with a target, else that of the text]",
)
@click.option("--layer", type=int, metavar="N", help="From 0.  [default: the last]")
@click.option("--head", type=int, metavar="N", help="From 0.  [default: the mean of all]")
@click.option("--revision", metavar="R", help="Branch, tag or commit of a hub id.")
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="A .png or .html to write."
)
def attention_command(
    source: str,
    text: str,
    target: str | None,
    kind: str | None,
    layer: int | None,
    head: int | None,
    revision: str | None,
    output: Path,
) -> None:
    """Draws which tokens each token attends to, as a heatmap."""
    checkpoint = load_checkpoint(resolve_source(source, revision).path)
    chosen = AttentionKind(kind) if kind else None
    attention = attention_map(checkpoint, text, target, layer, head, chosen)
    draw(attention, output)
    click.echo(f"{output}: {attention.title}")


def _report(report: ParityReport, as_json: bool, more: dict[str, Any]) -> None:
    if as_json:
        _print_json({**more, "parity": report.to_json()})
        return
    for check in report.failures:
        click.echo(f"FAILED {check}", err=True)
    passed = len(report.checks) - len(report.failures)
    click.echo(f"{passed} of {len(report.checks)} checks passed")


def _print_json(values: dict[str, Any]) -> None:
    click.echo(json.dumps(values, indent=2, ensure_ascii=False))


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(TERMINATED)  # an exception, so that unfinished output is removed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, by default the one that the process was started with; its exit code."""
    command: Callable[..., Any] = cli.main
    try:
        exit_code = command(arguments, prog_name="python -m export", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return USAGE
    except _USAGE_ERRORS as error:
        click.echo(f"error: {error}", err=True)
        return USAGE
    except _FAILURES as error:
        click.echo(f"error: {error}", err=True)
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    return exit_code or 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(main())
