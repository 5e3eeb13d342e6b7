"""Drawing an attention map: a picture, or a page that needs nothing but itself."""

from __future__ import annotations

from html import escape
from pathlib import Path

from export.attention_map import AttentionError, AttentionMap

_CELL_INCHES = 0.32
_STYLE = """
body { font: 13px sans-serif; margin: 2em; }
table { border-collapse: collapse; }
th { font-weight: normal; white-space: pre; padding: 0 4px; text-align: right; }
thead th { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; padding: 4px 0; }
td { width: 18px; height: 18px; }
"""


def draw(attention: AttentionMap, output: Path) -> None:
    """Writes a heatmap; the suffix of `output` says which: `.png` or `.html`.

    Raises:
        AttentionError: another suffix, or matplotlib is not installed.
        OSError: the file cannot be written.
    """
    if output.suffix == ".html":
        output.write_text(_page(attention), encoding="utf-8")
    elif output.suffix == ".png":
        _draw_picture(attention, output)
    else:
        raise AttentionError(f"--output {output}; it must end in .png or .html")


def _page(attention: AttentionMap) -> str:
    heads = "".join(f"<th>{escape(token)}</th>" for token in attention.columns)
    rows = "".join(
        f"<tr><th>{escape(token)}</th>{''.join(map(_cell, weights.tolist()))}</tr>\n"
        for token, weights in zip(attention.rows, attention.weights, strict=True)
    )
    return (
        f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{escape(attention.title)}'
        f"</title><style>{_STYLE}</style></head>\n<body><h1>{escape(attention.title)}</h1>\n"
        f"<table><thead><tr><th></th>{heads}</tr></thead>\n<tbody>{rows}</tbody></table>\n"
        "</body></html>\n"
    )


def _cell(weight: float) -> str:
    return f'<td title="{weight:.4f}" style="background: rgba(20, 70, 160, {weight:.4f})"></td>'


def _draw_picture(attention: AttentionMap, output: Path) -> None:
    try:
        from matplotlib.figure import Figure  # a large library, needed for pictures alone
    except ImportError:
        raise AttentionError(
            "a .png needs matplotlib: pip install matplotlib, or write a .html"
        ) from None
    height, width = (2 + _CELL_INCHES * count for count in attention.weights.shape)
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot(title=attention.title)
    image = axes.imshow(attention.weights, cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(range(len(attention.columns)), labels=attention.columns, rotation=90)
    axes.set_yticks(range(len(attention.rows)), labels=attention.rows)
    figure.colorbar(image, shrink=0.6)
    figure.savefig(output, dpi=120)
