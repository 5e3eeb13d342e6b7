"""python -m export inspect."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from export.artefact import Artefact
from export.commands.output import print_json
from export.inspection import inspect_artefact, render
from export.lstm_comparison import compare_with_lstm, render_comparison
from model.config import TransformerConfig


@click.command(name="inspect")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option(
    "--compare-lstm", is_flag=True, help="Count parameters beside a 6-layer LSTM of equal width."
)
def command(directory: Path, as_json: bool, compare_lstm: bool) -> None:
    """Shows what an artefact is: graphs, parameters, bytes, operators, cache, parity."""
    inspection = inspect_artefact(Artefact.open(directory))
    config = TransformerConfig.from_json(inspection.manifest.config)
    comparison = compare_with_lstm(config) if compare_lstm else None
    if as_json:
        more = {"lstm": comparison.to_json()} if comparison else {}
        print_json(inspection.to_json() | more)
        return
    console = Console()
    console.print(render(inspection))
    if comparison:
        console.print(render_comparison(comparison))
