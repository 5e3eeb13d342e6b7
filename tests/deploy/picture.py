"""Draws the dashboard into docs/dashboard.png: `python -m tests.deploy.picture DIR DIR`.

Serves the artefacts in the two DIRs, the first to embed and the second to generate, under a light
load, lets Prometheus record it, and draws each panel from what its queries return.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import click
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, Formatter, PercentFormatter

from export.manifest import load_manifest
from tests.deploy.dashboard import Panel, Query, load_panels
from tests.deploy.light_load import run_light_load
from tests.deploy.prometheus_process import PrometheusProcess, Series, running_prometheus
from tests.e2e.server_process import ROOT, running_server

_OUTPUT = ROOT / "docs" / "dashboard.png"
_COLUMNS = 4
_WINDOW = "10s"
_STEP_SECONDS = 1.0
_SMALLEST_SPAN = 1e-3
_FORMATTERS: dict[str, Formatter] = {
    "s": EngFormatter("s"),
    "bytes": EngFormatter("B"),
    "reqps": EngFormatter("/s"),
    "percentunit": PercentFormatter(1.0),
    "short": EngFormatter(),
}


@click.command()
@click.argument("embedder", type=click.Path(exists=True, path_type=Path))
@click.argument("generator", type=click.Path(exists=True, path_type=Path))
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Of load.")
def main(embedder: Path, generator: Path, seconds: float) -> None:
    """Records a load and draws it."""
    embeds, generates = load_manifest(embedder).name, load_manifest(generator).name
    with (
        running_server([embedder, generator], "--slots", "4") as server,
        running_prometheus(server.metrics_url.split("/")[2]) as prometheus,
    ):
        start = time.time()
        run_light_load(server.target, embeds, generates, seconds)
        time.sleep(_STEP_SECONDS)
        draw(prometheus, start, time.time(), _OUTPUT)
    click.echo(_OUTPUT)


def draw(prometheus: PrometheusProcess, start: float, end: float, path: Path) -> None:
    """Writes a PNG of all panels between two Unix times."""
    panels = [panel for panel in load_panels(_WINDOW) if panel.kind == "timeseries"]
    rows = -(-len(panels) // _COLUMNS)
    figure = Figure(figsize=(5 * _COLUMNS, 3.6 * rows), layout="constrained")
    grid = figure.subplots(rows, _COLUMNS, squeeze=False).flat
    for panel, axes in zip(panels, grid, strict=False):
        for query in panel.queries:
            found = prometheus.query_range(query.expression, start, end, _STEP_SECONDS)
            _plot(axes, query, found, start)
        _dress(axes, panel)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.savefig(path, dpi=70)


def _plot(axes: Axes, query: Query, found: list[Series], start: float) -> None:
    for series in found:
        seconds, values = zip(*series.values, strict=True)
        # Labels are closed sets: most series of some panels are zero, or of nothing.
        tells = any(math.isfinite(value) and value > 0 for value in values)
        label = query.name_of(series.labels) if tells else None
        axes.plot([at - start for at in seconds], values, label=label, linewidth=1)


def _dress(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=10)
    axes.set_ylim(0, 1.1 * max(axes.get_ylim()[1], _SMALLEST_SPAN))
    axes.xaxis.set_major_formatter(EngFormatter("s"))
    axes.yaxis.set_major_formatter(_FORMATTERS[panel.unit])
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        below = (0.5, -0.1)
        axes.legend(fontsize=7, ncols=3, frameon=False, loc="upper center", bbox_to_anchor=below)


if __name__ == "__main__":
    main()
