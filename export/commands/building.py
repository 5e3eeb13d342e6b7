"""python -m export build.

PyTorch and ONNX are loaded by the processes that do the work: this one, which waits, leaves them
the memory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from export.build import ParityFailure, build
from export.build_options import BuildOptions
from export.commands.options import SOURCE_HELP, choice
from export.commands.output import print_json, print_report
from export.exit_codes import FAILED
from export.manifest import Device, Precision
from export.precisions import default_precision
from export.progress import ShownSteps
from export.source import default_name, resolve_source
from model.config import PoolingMode


@click.command(name="build", epilog=SOURCE_HELP)
@click.argument("source")
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="The artefact's directory."
)
@click.option("--name", help="What clients call the model.  [default: the last part of SOURCE]")
@click.option(
    "--device",
    type=choice(Device),
    default=Device.CPU.value,
    show_default=True,
    help="What the artefact is to run on.",
)
@click.option(
    "--precision",
    type=choice(Precision),
    help="The dtype of the weights.  [default: fp32 for cpu, fp16 for cuda]",
)
@click.option(
    "--pooling",
    type=choice(PoolingMode),
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
def command(
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
        print_report(failure.report, as_json, {"output": None})
        click.echo(f"nothing was written to {output}", err=True)
        raise click.exceptions.Exit(FAILED) from None
    if as_json:
        print_json({"output": str(output), "manifest": json.loads(manifest.to_bytes())})
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
