"""What the server has measured, from its /metrics."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

_STEP, _FIRST = "formerd_step_duration_seconds", "formerd_time_to_first_token_seconds"
LATENCIES = (
    (
        "g2p: a word, unary",
        "formerd_request_duration_seconds",
        {"model": "g2p", "method": "Generate"},
    ),
    ("g2p: time to first phone", _FIRST, {"model": "g2p"}),
    ("g2p: decode step", _STEP, {"model": "g2p", "phase": "decode"}),
    (
        "minilm: embedding call",
        "formerd_request_duration_seconds",
        {"model": "minilm", "method": "Embed"},
    ),
    ("smollm2: time to first token", _FIRST, {"model": "smollm2"}),
    ("smollm2: between tokens", "formerd_inter_token_latency_seconds", {"model": "smollm2"}),
    ("smollm2: decode step", _STEP, {"model": "smollm2", "phase": "decode"}),
)


def show_latencies(metrics_url: str, console: Console) -> None:
    """Counts, means and quantiles of the calls that the tour has made."""
    console.rule("Latencies, from /metrics")
    with urllib.request.urlopen(metrics_url, timeout=10) as response:
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
