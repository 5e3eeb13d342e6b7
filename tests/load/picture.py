"""docs/load.png: the load of many clients, and the memory that servers took."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from client.load.picture import draw_ends, draw_percentiles, draw_times
from client.load.tally import Tally
from tests.load.process_watch import ProcessWatch


def draw(tally: Tally, watches: Mapping[str, ProcessWatch], path: Path) -> None:
    """Writes a PNG."""
    figure = Figure(figsize=(13, 8), layout="constrained")
    (percentiles, times), (ends, memory) = figure.subplots(2, 2)
    draw_percentiles(percentiles, tally)
    draw_times(times, tally)
    draw_ends(ends, tally)
    _draw_memory(memory, watches)
    figure.savefig(path, dpi=80)


def _draw_memory(axes: Axes, watches: Mapping[str, ProcessWatch]) -> None:
    for label, watch in watches.items():
        axes.plot(watch.seconds, watch.resident, label=label, linewidth=1)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(EngFormatter("s"))
    axes.yaxis.set_major_formatter(EngFormatter("B"))
    axes.set_title("resident memory")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
