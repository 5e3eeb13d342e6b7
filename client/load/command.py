"""What `python -m client load` does: questions, references, load, report."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from client.aio import AsyncClient
from client.connection import Connection
from client.load.display import shown
from client.load.profile import LoadError, Plan
from client.load.questions import draw_questions
from client.load.reference import take_references
from client.load.report import report
from client.load.run import run_load
from client.load.tally import Tally

REPORT_FILE = "load.json"
PICTURE_FILE = "load.png"


class NoPictures(LoadError):
    """matplotlib, which draws the report, is not installed."""


@dataclass(frozen=True)
class LoadOptions:
    """What the command takes beside the plan.

    Attributes:
        embedder, generator: names of models; None takes the first that does it.
        directory: where the report goes; None writes none.
    """

    embedder: str | None = None
    generator: str | None = None
    directory: Path | None = None


async def load(
    plan: Plan, connection: Connection, options: LoadOptions, console: Console
) -> tuple[Tally, dict[str, Any]]:
    """Puts a server under load, shown on `console`; what came of it, and the report of it.

    Raises:
        NoPictures: a report is wanted that cannot be drawn.
        NoSuchModel: no model is loaded for what the load asks.
        CallFailed: the server does not answer before the load has begun.
    """
    if options.directory is not None and find_spec("matplotlib") is None:
        raise NoPictures("--report draws with matplotlib: install the extra `load`")
    async with AsyncClient(connection, timeout=plan.timeout) as client:
        models = await client.models()
        questions = await draw_questions(
            client,
            plan.profile,
            random.Random(plan.seed),
            embedder=options.embedder,
            generator=options.generator,
        )
        console.print(f"taking the answers to {len(questions)} questions, one by one")
        references = await take_references(client, questions)
    tally = Tally()
    async with shown(tally, plan, console):
        await run_load(plan, connection, references, tally)
    content = report(plan, models, tally)
    if options.directory is not None:
        _write(options.directory, tally, content)
        console.print(f"report: {options.directory / REPORT_FILE}")
    return tally, content


def _write(directory: Path, tally: Tally, content: dict[str, Any]) -> None:
    from client.load.picture import draw  # the only part that needs matplotlib

    directory.mkdir(parents=True, exist_ok=True)
    (directory / REPORT_FILE).write_text(json.dumps(content, indent=2) + "\n")
    draw(tally, directory / PICTURE_FILE)
