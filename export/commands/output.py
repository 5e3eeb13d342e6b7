"""What several commands print."""

from __future__ import annotations

import json
from typing import Any

import click

from export.parity import ParityReport


def print_report(report: ParityReport, as_json: bool, more: dict[str, Any]) -> None:
    """The failures, each in a line, and how many checks passed; all of it as JSON, with `more`."""
    if as_json:
        print_json({**more, "parity": report.to_json()})
        return
    for check in report.failures:
        click.echo(f"FAILED {check}", err=True)
    passed = len(report.checks) - len(report.failures)
    click.echo(f"{passed} of {len(report.checks)} checks passed")


def print_json(values: dict[str, Any]) -> None:
    """For people too: indented."""
    click.echo(json.dumps(values, indent=2, ensure_ascii=False))
