"""A load drawn: percentiles, times as they went, and how calls ended."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from client.load.attempt import End
from client.load.profile import Kind
from client.load.tally import Tally, latencies

_TICKS = (0.5, 0.9, 0.99, 0.999)
_BINS = 60
_COLOURS = {
    End.ANSWERED: "#55a868",
    End.REFUSED: "#dd8452",
    End.EXPIRED: "#8172b3",
    End.LEFT: "#999999",
    End.UNAVAILABLE: "#937860",
    End.FAILED: "#c44e52",
}


def draw(tally: Tally, path: Path) -> None:
    """Writes a PNG."""
    figure = Figure(figsize=(15, 4.2), layout="constrained")
    percentiles, times, ends = figure.subplots(1, 3)
    draw_percentiles(percentiles, tally)
    draw_times(times, tally)
    draw_ends(ends, tally)
    figure.savefig(path, dpi=100)


def draw_percentiles(axes: Axes, tally: Tally) -> None:
    """Of the answered calls, the time that so many did not exceed."""
    for kind in Kind:
        if ordered := latencies(tally.of(kind)):
            # Each further nine takes as much room as the one before it.
            beyond = [len(ordered) / (len(ordered) - index) for index in range(len(ordered))]
            axes.plot(beyond, ordered, label=kind, drawstyle="steps-post")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(
        [1 / (1 - share) for share in _TICKS], [f"{100 * share:g} %" for share in _TICKS]
    )
    axes.minorticks_off()
    axes.set_title("latency by percentile")
    _dress(axes)


def draw_times(axes: Axes, tally: Tally) -> None:
    """Of each answered call, when it ended and how long it took."""
    for kind in Kind:
        answered = [record for record in tally.of(kind) if record.end is End.ANSWERED]
        if answered:
            ended = [record.began + record.seconds for record in answered]
            axes.plot(ended, [record.seconds for record in answered], ".", ms=2, label=kind)
    axes.set_yscale("log")
    axes.set_title("latency over time")
    axes.xaxis.set_major_formatter(EngFormatter("s"))
    _dress(axes)


def draw_ends(axes: Axes, tally: Tally) -> None:
    """Calls by when and how they ended."""
    ended = {
        end: [record.began + record.seconds for record in tally.records if record.end is end]
        for end in End
        if tally.ends[end]
    }
    if ended:
        colours = [_COLOURS[end] for end in ended]
        axes.hist([*ended.values()], _BINS, stacked=True, color=colours, label=[*ended])
    axes.set_title("how calls ended")
    axes.xaxis.set_major_formatter(EngFormatter("s"))
    axes.legend(frameon=False)


def _dress(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(EngFormatter("s"))
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, markerscale=4)
