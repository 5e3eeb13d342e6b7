"""Every query of the dashboard returns data from a Prometheus that watches a real server."""

from __future__ import annotations

import math

import pytest

from tests.deploy.conftest import Watched
from tests.deploy.dashboard import load_dashboard, load_panels

WINDOW = "5m"  # the whole load, however long ago it ended
QUERIES = {
    f"{panel.title}, {number}": query
    for panel in load_panels(WINDOW)
    for number, query in enumerate(panel.queries, 1)
}
# What the load causes, and what it must not.
POSITIVE = {
    "Requests by method, 1": "method",
    "Errors by status, 1": "code",
    "Rejections by reason, 1": "reason",
    "Cancellations, 1": "stage",
    "Latency by method, 1": "method",
    "Time to first token, 1": None,
    "Inter-token latency, 1": None,
    "Sequences in a batch, 1": "phase",
    "Tokens, 1": "kind",
    "Prefix cache hits, 1": "model",
    "Memory, 1": None,
    "Processors in use, 1": None,
}


@pytest.mark.xdist_group("prometheus")
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_returns_data(name: str, watched: Watched) -> None:
    found = watched.prometheus.query(QUERIES[name].expression)
    values = [value for series in found for _, value in series.values]
    assert any(math.isfinite(value) for value in values)
    if name in POSITIVE:
        assert max(value for value in values if math.isfinite(value)) > 0


@pytest.mark.xdist_group("prometheus")
@pytest.mark.parametrize("name", QUERIES)
def test_a_legend_names_labels_that_the_answer_has(name: str, watched: Watched) -> None:
    wanted = QUERIES[name].labels
    for series in watched.prometheus.query(QUERIES[name].expression):
        assert wanted <= series.labels.keys()


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = load_dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
