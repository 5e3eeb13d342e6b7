"""python -m export attention."""

from __future__ import annotations

from pathlib import Path

import click

from export.attention_map import AttentionKind, attention_map
from export.commands.options import SOURCE_HELP, choice
from export.heatmap import draw
from export.source import resolve_source
from model.checkpoints import load_checkpoint


@click.command(name="attention", epilog=SOURCE_HELP)
@click.argument("source")
@click.option("--text", required=True, help="What the model reads.")
@click.option("--target", help="What an encoder-decoder has written: shows its cross-attention.")
@click.option(
    "--kind",
    type=choice(AttentionKind),
    help="Whose attention.  [default: cross-attention with a target, else that of the text]",
)
@click.option("--layer", type=int, metavar="N", help="From 0.  [default: the last]")
@click.option("--head", type=int, metavar="N", help="From 0.  [default: the mean of all]")
@click.option("--revision", metavar="R", help="Branch, tag or commit of a hub id.")
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, help="A .png or .html to write."
)
def command(
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
