"""docs/operations.md has a row for every flag, series and status code, and for no other."""

from __future__ import annotations

import re
from pathlib import Path

import click
from prometheus_client import CollectorRegistry

from server.command import main
from server.metrics import CODES, Metrics
from tests.server.manifests import encoder_manifest

PREFIX = "formerd_"
MANUAL = Path(__file__).resolve().parent.parent / "docs" / "operations.md"


def first_cells(section: str) -> list[str]:
    """What the rows of a section's tables begin with, their headings left out."""
    _, _, rest = MANUAL.read_text().partition(f"\n## {section}\n")
    text, _, _ = rest.partition("\n## ")
    assert text, f"the manual has no section {section}"
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return [re.split(r"(?<!\\)\|", row)[1] for row in rows]


def names(section: str, pattern: str) -> set[str]:
    """What the first cells of a section's rows name."""
    return {name for cell in first_cells(section) for name in re.findall(pattern, cell)}


def test_every_flag() -> None:
    options = [each for each in main.params if isinstance(each, click.Option)]
    flags = {name for option in options for name in option.opts}
    assert names("Flags", r"--[a-z-]+") == flags - {"--version"}


def test_every_series() -> None:
    registry = CollectorRegistry()
    Metrics(registry, ["model"]).model("model").describe(encoder_manifest("model"))
    families = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
        if family.name.startswith(PREFIX)
    }
    assert {PREFIX + name for name in names("Metrics", r"`([a-z_]+)`")} == families


def test_every_status_code() -> None:
    assert names("Status codes", r"`([A-Z_]+)`") == set(CODES) - {"OK"}
