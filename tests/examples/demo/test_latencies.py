"""What the table makes of a histogram."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from rich.console import Console

from examples.demo import latencies


def test_counts_means_and_quantiles_of_the_right_series(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    for name, labels in {(name, tuple(labels)) for _, name, labels in latencies.LATENCIES}:
        histogram = Histogram(name, "", labels, registry=registry, buckets=(0.01, 0.1, 1.0))
        for values in [each for _, known, each in latencies.LATENCIES if known == name]:
            for seconds in (0.004, 0.006, 0.050):
                histogram.labels(**values).observe(seconds)
        histogram.labels(**dict.fromkeys(labels, "of another")).observe(0.5)
    page = tmp_path / "metrics"
    page.write_bytes(generate_latest(registry))
    console = Console(width=100)
    with console.capture() as shown:
        latencies.show_latencies(page.as_uri(), console)
    rows = shown.get().splitlines()[2:]
    assert len(rows) == len(latencies.LATENCIES)
    for (title, _, _), row in zip(latencies.LATENCIES, rows, strict=True):
        count, mean, half, most = row.removeprefix(f" {title}").replace(" ms", "").split()
        assert (count, mean, half, most) == ("3", "20.0", "10.0", "100.0")
