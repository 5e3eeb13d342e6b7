"""python -m examples.g2p: train the grapheme-to-phoneme model, measure it, publish it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Column, Table

from client.errors import CallFailed
from client.sync import Client
from examples.g2p.dictionary import read_dictionary
from examples.g2p.evaluation import COLUMNS, Evaluation, evaluate
from examples.g2p.loss_curve import draw
from examples.g2p.progress import TrainingProgress
from examples.g2p.pronouncer import Pronouncer
from examples.g2p.publication import publish
from examples.g2p.recipe import Recipe
from examples.g2p.served_pronouncer import ServedPronouncer
from examples.g2p.split import Split, split
from examples.g2p.training import Training, TrainingError
from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = ROOT / "build" / "g2p"
ASSET = ROOT / "assets" / "g2p"
_FAILURES = (TrainingError, CheckpointError, CallFailed, OSError)
_FAILED, _USAGE, _INTERRUPTED = 1, 2, 130

_directory = click.Path(path_type=Path, file_okay=False)
_work_option = click.option(
    "--work", type=_directory, default=WORK, show_default="build/g2p", help="Where training lies."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """English spelling to ARPAbet, learned from CMUdict.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
    """


@cli.command()
@_work_option
@click.option("--seed", type=int, help=f"[default: {Recipe.seed}]")
@click.option("--epochs", type=click.IntRange(1), help=f"[default: {Recipe.epochs}]")
@click.option("--threads", type=click.IntRange(1), help="[default: one a core]")
@click.option("--resume", is_flag=True, help="Goes on after the last whole epoch, as it was begun.")
def train(
    work: Path, seed: int | None, epochs: int | None, threads: int | None, resume: bool
) -> None:
    """Trains a model; its state and the curve of its loss are written after every epoch."""
    if threads is not None:
        torch.set_num_threads(threads)
    state = _state(work)
    chosen = {"seed": seed, "epochs": epochs}
    changes: dict[str, Any] = {k: value for k, value in chosen.items() if value is not None}
    if resume and changes:
        raise click.UsageError(f"--resume goes on as it was begun, without {' and '.join(changes)}")
    if not resume and state.exists():
        raise TrainingError(f"{state} exists: --resume goes on with it; or remove it")
    words = _words()
    training = Training.load(state, words) if resume else Training(Recipe(**changes), words)
    with TrainingProgress(training) as progress:
        while not training.finished:
            progress.epoch_done(training.run_epoch(progress.batch_done))
            training.save(state)
            draw(training.history, work / "training.png")


@cli.command(name="evaluate")
@click.argument("checkpoint", type=_directory, default=ASSET)
@click.option("--target", metavar="HOST:PORT", help="Measures a server's model instead.")
@click.option("--model", default="g2p", show_default=True, help="The model's name there.")
@click.option("--json", "as_json", is_flag=True, help="Prints JSON.")
def evaluate_command(checkpoint: Path, target: str | None, model: str, as_json: bool) -> None:
    """Pronounces the held-out words and counts the errors.

    CHECKPOINT is a directory, by default the published model's.
    """
    words = _words()
    if target is None:
        _show(evaluate(Pronouncer.of(load_checkpoint(checkpoint)), words), as_json)
        return
    with Client(target, timeout=600) as client:
        _show(evaluate(ServedPronouncer(client, model), words), as_json)


@cli.command(name="publish")
@_work_option
@click.option("--output", type=_directory, default=ASSET, show_default="assets/g2p")
def publish_command(work: Path, output: Path) -> None:
    """Writes what was trained as a checkpoint with its card, if it is good enough."""
    _show(publish(Training.load(_state(work), _words()), output), as_json=False)


def _state(work: Path) -> Path:
    return work / "state.pt"


def _words() -> Split:
    return split(read_dictionary())


def _show(evaluation: Evaluation, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(evaluation.to_json(), indent=2))
        return
    table = Table(Column(COLUMNS[0], no_wrap=True), *COLUMNS[1:], box=None)
    for row in evaluation.rows():
        table.add_row(*row)
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, by default the one that the process was started with; its exit code."""
    try:
        cli.main(arguments, prog_name="python -m examples.g2p", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return _USAGE
    except _FAILURES as error:
        click.echo(f"error: {error}", err=True)
        return _FAILED
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
