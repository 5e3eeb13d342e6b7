"""Translation beside its peers: the same weights and sources, in one run on one machine.

    make bench-seq2seq
    python -m bench.seq2seq [--quick]

A Marian of the size of OPUS-MT's with random weights, in fp32; 64 requests that are all there at
once, sources of 10 to 100 tokens, targets of 10 to 100 whatever they are, 16 at a time. formerd
takes them over gRPC, as they arrive. The peers take batches of 16, as they arrive and sorted by the
length of the targets, which nobody knows before: transformers computes every row of a batch to the
longest target, CTranslate2 drops a row where it ends. The systems take turns, round by round.
"""

from __future__ import annotations

import json
import platform
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from bench.engines.catalogue import CTRANSLATE2, TRANSFORMERS
from bench.engines.conversion import make
from bench.engines.process import ROOT
from bench.random_marian import END_ID, PAD_ID, UNKNOWN_ID, write_random_marian
from bench.translation import AS_THEY_ARRIVE, OURS, Translate, systems
from bench.workload import Request, generated_tokens
from launch.artefact import built_artefact
from server.processors import usable_processors

WORK = ROOT / "build" / "bench"
SOURCE_TOKENS = TARGET_TOKENS = (10, 100)
TARGETS = {f"{TRANSFORMERS}, {AS_THEY_ARRIVE}": 3.0, f"{CTRANSLATE2}, {AS_THEY_ARRIVE}": 1.0}
_COMPARED_REQUESTS, _COMPARED_TOKENS = 4, 8

console = Console()


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    requests: int
    rounds: int


FULL, QUICK = Extent(requests=64, rounds=3), Extent(requests=4, rounds=1)


@dataclass(frozen=True)
class Figure:
    """One system: the seconds of each round, and the median of its requests a second."""

    system: str
    seconds: tuple[float, ...]
    requests_per_second: float
    tokens_per_second: float


@click.command()
@click.option("--quick", is_flag=True, help="Very little: does it run at all?")
@click.option(
    "--peers-python",
    type=click.Path(path_type=Path),
    default=ROOT / ".venv-peers" / "bin" / "python",
    envvar="BENCH_PEERS_PYTHON",
    help="The interpreter that has the peers.  [default: that of `make bench-peers`]",
)
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    default=WORK,
    help="Where the checkpoint, its conversion and results are kept.  [default: build/bench]",
)
def main(quick: bool, peers_python: Path, work: Path) -> None:
    """Measures formerd's translation and that of its peers."""
    extent = QUICK if quick else FULL
    checkpoint = work.resolve() / "marian"
    make(checkpoint, write_random_marian)
    artefact = built_artefact("random-marian", str(checkpoint))
    requests = random_requests(extent.requests)
    with systems(artefact, checkpoint, peers_python.absolute(), console) as opened:
        figures = measure(opened, requests, extent.rounds)
    machine = f"{platform.processor() or platform.machine()}, {usable_processors()} threads"
    content = {"machine": machine, **asdict(extent), "figures": [asdict(each) for each in figures]}
    path = work / ("seq2seq-quick.json" if quick else "seq2seq.json")
    path.write_text(json.dumps(content, indent=2) + "\n")
    show(figures, machine, console)
    console.print(f"All figures are in {path}")


def random_requests(count: int, seed: int = 0) -> list[Request]:
    """Sources of random tokens with an end, and the lengths of their targets, uniformly mixed."""
    chance = random.Random(seed)

    def source() -> tuple[int, ...]:
        words = range(UNKNOWN_ID + 1, PAD_ID)
        return (*chance.choices(words, k=chance.randint(*SOURCE_TOKENS) - 1), END_ID)

    return [Request(source(), chance.randint(*TARGET_TOKENS)) for _ in range(count)]


def measure(
    opened: Mapping[str, Translate], requests: Sequence[Request], rounds: int
) -> list[Figure]:
    """Rounds in which every system has its turn; refuses to time a wrong answer."""
    check_answers(opened, requests[:_COMPARED_REQUESTS])
    seconds: dict[str, list[float]] = {system: [] for system in opened}
    for number in range(rounds):
        for system, translate in opened.items():
            began = time.perf_counter()
            targets = translate(requests)
            seconds[system].append(time.perf_counter() - began)
            if list(map(len, targets)) != [request.new_tokens for request in requests]:
                raise click.ClickException(f"{system} does not give what was asked for")
            rate = len(requests) / seconds[system][-1]
            console.print(f"round {number + 1}, {system}: {rate:.2f} requests/s")
    return [figure(system, taken, requests) for system, taken in seconds.items()]


def check_answers(opened: Mapping[str, Translate], requests: Sequence[Request]) -> None:
    """Compares the first tokens of some targets; it warms everyone up."""
    short = [Request(request.prompt, _COMPARED_TOKENS) for request in requests]
    expected: list[list[int]] | None = None
    for system, translate in opened.items():
        targets = translate(short)
        if len(set(map(tuple, targets))) < len(targets):
            raise click.ClickException(
                f"{system} gives one target for different sources: {targets}"
            )
        expected = expected or targets
        if targets != expected:
            raise click.ClickException(f"{system} gives {targets}, another system {expected}")


def figure(system: str, seconds: Sequence[float], requests: Sequence[Request]) -> Figure:
    """Speeds by the median round."""
    typical = median(seconds)
    tokens = generated_tokens(requests)
    return Figure(system, tuple(seconds), len(requests) / typical, tokens / typical)


def show(figures: Sequence[Figure], machine: str, console: Console) -> None:
    """The table, with the targets."""
    table = Table(title=f"Marian of 6 + 6 layers, fp32, {machine}")
    for column in ("system", "seconds", "requests/s", "tokens/s", "formerd, times", "target"):
        table.add_column(column, justify="left" if column == "system" else "right")
    ours = next(each.requests_per_second for each in figures if each.system == OURS)
    for each in sorted(figures, key=lambda each: -each.requests_per_second):
        wanted = TARGETS.get(each.system)
        table.add_row(
            each.system,
            " ".join(f"{taken:.1f}" for taken in each.seconds),
            f"{each.requests_per_second:.2f}",
            f"{each.tokens_per_second:.0f}",
            f"{ours / each.requests_per_second:.2f}",
            f">= {wanted:.1f}" if wanted else "",
        )
    console.print(table)


if __name__ == "__main__":
    main()
