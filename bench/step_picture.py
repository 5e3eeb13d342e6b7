"""The parts of a step as stacked bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.results import StepParts
from bench.step_parts import PARTS, RUN

_COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3")


def draw(parts: Sequence[StepParts], path: Path) -> None:
    """Writes a PNG: whole steps on the left, what is not ONNX Runtime on the right, enlarged."""
    figure = Figure(figsize=(11, 0.9 + 0.55 * len(parts)), layout="constrained")
    whole, ours = figure.subplots(1, 2, sharey=True)
    _bars(whole, parts, PARTS)
    _bars(ours, parts, [part for part in PARTS if part != RUN])
    whole.set_title("a decode step")
    ours.set_title("the same without ONNX Runtime")
    figure.legend(*whole.get_legend_handles_labels(), loc="outside lower center", ncols=len(PARTS))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _bars(axes: Axes, parts: Sequence[StepParts], names: Sequence[str]) -> None:
    left = [0.0] * len(parts)
    for name in names:
        widths = [max(0.0, each.milliseconds[name]) for each in parts]
        labels = [each.label for each in parts]
        axes.barh(labels, widths, left=left, label=name, color=_COLOURS[PARTS.index(name)])
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_xlabel("milliseconds")
    if not axes.yaxis_inverted():
        axes.invert_yaxis()
