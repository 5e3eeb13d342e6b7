"""The tour. `make demo` runs it; its first run builds the artefacts, which takes a few minutes."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from client.sync import Client
from examples.demo import chatting, pronouncing, searching
from examples.demo.latencies import show_latencies
from launch.artefact import BuildFailed, built_artefact
from launch.daemon import Daemon, DaemonFailed, daemon

console = Console()


def main() -> int:
    """Builds, serves, shows, stops; returns the exit code."""
    try:
        artefacts = [
            built_artefact(model.MODEL, model.CHECKPOINT)
            for model in (pronouncing, searching, chatting)
        ]
        console.print("Starting one server for all three models ...")
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
    pronouncing.pronounce(server.target, console)
    searching.search(server.target, console)
    chatting.chat(server.target, console)
    show_latencies(server.metrics_url, console)


if __name__ == "__main__":
    sys.exit(main())
