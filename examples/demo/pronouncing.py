"""Unusual words and names, pronounced by the model that the repository holds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from client.aio import AsyncClient
from client.results import Chunk
from client.sync import Client
from launch.artefact import ROOT

MODEL = "g2p"
CHECKPOINT = "assets/g2p"
PICTURE = Path("build") / "demo" / "cross-attention.png"
STREAMED = ("bioluminescence", "kierkegaard", "wojciechowska")
TOGETHER = (
    *("Leicestershire", "Daenerys", "Chiwetel", "Brontë", "Xanthippe", "Ngozi", "Cthulhu", "Smaug"),
    *("Zbigniew", "Scheherazade", "Llewellyn", "Yggdrasil", "Persephone", "Hermione", "Nausicaä"),
    "Saoirse",
)
_COLUMNS = 2


def pronounce(target: str, console: Console) -> None:
    """Phone by phone, many names at once, and what the decoder looked at."""
    console.rule("Pronunciations, streamed")
    with Client(target, timeout=120) as client:
        spoken = {name: _stream(client, name, console) for name in STREAMED}
    console.rule(f"{len(TOGETHER)} names at once")
    asyncio.run(_together(target, console))
    console.rule("Which letters each phone came from")
    _draw_attention(STREAMED[0], spoken[STREAMED[0]], console)


def _stream(client: Client, name: str, console: Console) -> str:
    """Prints phones as they come; returns all of them."""
    console.print(f"{name:>16}  ", style="bold", end="")
    phones = ""
    for event in client.stream(name, model=MODEL):
        if isinstance(event, Chunk):
            phones += event.text
            console.print(Text(event.text), end="")
    console.print()
    return phones


async def _together(target: str, console: Console) -> None:
    """All names at once, then one after the other, which finds them encoded, and waits longer."""
    async with AsyncClient(target, timeout=120) as client:

        async def phones(name: str) -> str:
            return (await client.generate(name, model=MODEL)).text

        began = time.perf_counter()
        at_once = await asyncio.gather(*map(phones, TOGETHER))
        between = time.perf_counter()
        in_turn = [await phones(name) for name in TOGETHER]
        ended = time.perf_counter()
    console.print(_in_columns(list(zip(TOGETHER, at_once, strict=True))))
    console.print(
        f"at once {between - began:.2f} s, one after the other {ended - between:.2f} s; "
        f"the same phones: {'yes' if at_once == in_turn else 'no'}",
        style="dim",
    )


def _in_columns(pairs: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    height = -(-len(pairs) // _COLUMNS)
    for row in range(height):
        cells = [cell for pair in pairs[row::height] for cell in pair]
        table.add_row(*(Text(cell, "bold" if not i % 2 else "") for i, cell in enumerate(cells)))
    return table


def _draw_attention(name: str, phones: str, console: Console) -> None:
    """A picture of the cross-attention, by the export's own command.

    Raises:
        subprocess.CalledProcessError: it has said why it could not be drawn.
    """
    (ROOT / PICTURE.parent).mkdir(parents=True, exist_ok=True)
    command = ["-m", "export", "attention", CHECKPOINT, "--text", name, "--target", phones]
    command += ["--kind", "cross-attention", "--output", str(PICTURE)]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    console.print(f"{name} -> {phones}, as a heatmap: [bold]{PICTURE}[/]")
