"""The dashboard's panels and their queries, as Grafana would send them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).resolve().parents[2] / "deploy/grafana/dashboards/formerd.json"
_LABEL = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class Query:
    """One query of a panel; `legend` has labels in double braces."""

    expression: str
    legend: str

    @property
    def labels(self) -> set[str]:
        """The labels that its legend needs."""
        return set(_LABEL.findall(self.legend))

    def name_of(self, labels: Mapping[str, str]) -> str:
        """What the legend calls a series of the answer."""
        return _LABEL.sub(lambda match: labels[match[1]], self.legend)


@dataclass(frozen=True)
class Panel:
    """One panel; `kind` is stat, timeseries or table."""

    title: str
    kind: str
    unit: str
    queries: tuple[Query, ...]


def load_dashboard() -> dict[str, Any]:
    """The dashboard as Grafana is given it."""
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return dashboard


def load_panels(window: str) -> list[Panel]:
    """Every panel, for all instances and models; `window` is what rates are taken over."""
    return [
        Panel(
            panel["title"],
            panel["type"],
            panel["fieldConfig"]["defaults"]["unit"],
            tuple(
                Query(_filled_in(target["expr"], window), target["legendFormat"])
                for target in panel["targets"]
            ),
        )
        for panel in load_dashboard()["panels"]
        if panel["type"] != "row"
    ]


def _filled_in(expression: str, window: str) -> str:
    """What Grafana does with its variables."""
    for variable, value in (
        ("$__rate_interval", window),
        ("$instance", ".*"),
        ("$model", ".*"),
    ):
        expression = expression.replace(variable, value)
    assert "$" not in expression, f"an unknown variable in {expression}"
    return expression
