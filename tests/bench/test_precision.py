"""The tables of precisions: what was measured beside fp32, and what the gate found to be lost."""

from __future__ import annotations

import json
from pathlib import Path

from bench.precision import MINILM, Row, markdown, row, write
from export.manifest import Precision
from tests.artefacts import encoder_artefact, quantised_encoder_artefact

ROWS = [
    Row("m", "peer", None, {"texts/s": 50.0}, {}),
    Row("m", "fp32", 90.4, {"texts/s": 100.0}, {}),
    Row("m", "int8", 25.6, {"texts/s": 150.0}, {"cosine at worst": 0.001}),
]


def test_speeds_stand_beside_fp32_and_losses_as_they_are_spoken_of() -> None:
    assert list(markdown(ROWS)) == [
        "| m | MB | texts/s | cosine at worst |",
        "|---|---|---|---|",
        "| peer |  | 50.0 (0.50x) |  |",
        "| fp32 | 90 | 100.0 (1.00x) |  |",
        "| int8 | 26 | 150.0 (1.50x) | 0.99900 |",
    ]


def test_models_measured_apart_meet_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "precision.json"
    write(path, {"m": ROWS})
    write(path, {"n": ROWS[:1]})
    content = json.loads(path.read_text())
    assert len(content["m"]) == 3
    assert content["n"][0]["speed"] == {"texts/s": 50.0}
    assert content["corpus"].startswith("pydoc_data.topics of Python 3.")


def test_size_and_drift_are_the_artefacts_own() -> None:
    full = row(MINILM, "fp32", encoder_artefact(), {})
    small = row(MINILM, "int8", quantised_encoder_artefact(Precision.INT8), {})
    assert full.drift == {}
    assert full.megabytes is not None
    assert small.megabytes is not None
    assert small.megabytes < full.megabytes
    assert 0 < small.drift["cosine at worst"] < 0.002
    assert row(MINILM, "peer", None, {"texts/s": 1.0}).megabytes is None


def test_every_loss_has_a_column() -> None:
    losses = row(MINILM, "int8", quantised_encoder_artefact(Precision.INT8), {"u": 1.0})
    header = next(iter(markdown([losses])))
    assert all(name in header for name in losses.drift)
    assert len(losses.drift) == 3
