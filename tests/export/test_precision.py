"""Every family in every precision of few bits: built, verified by the whole gate, and small."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.artefact import Artefact
from export.build import BuildOptions, ParityFailure, build
from export.gate import GateTask, check_artefact
from export.manifest import PARITY_FILE, Precision, load_manifest
from export.parity import ParityReport
from export.progress import SilentSteps, Steps
from export.recipe import recipe_of
from export.source import resolve_source
from export.verify import replay, verify_against
from model.config import PoolingMode
from tests.artefacts import (
    decoder_artefact,
    encoder_artefact,
    quantised_decoder_artefact,
    quantised_encoder_artefact,
)
from tests.checkpoints import write_decoder
from tests.model.checkpoints.tiny_references import (
    save,
    tiny_bert,
    tiny_distilbert,
    tiny_gpt2,
    tiny_llama,
    tiny_mistral,
    tiny_qwen2,
    tiny_roberta,
    tiny_xlm_roberta,
)

# Rows of whole blocks, and heads that the attention operator takes.
_BERT = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
_LLAMA = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
}
ENCODERS: dict[str, Callable[[], Any]] = {
    "bert": lambda: tiny_bert(**_BERT),
    "distilbert": lambda: tiny_distilbert(dim=64, hidden_dim=96, n_layers=2),
    "roberta": lambda: tiny_roberta(**_BERT),
    "xlm-roberta": lambda: tiny_xlm_roberta(**_BERT),
}
DECODERS: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: tiny_gpt2(n_embd=64, n_head=4, n_layer=2),
    "llama": lambda: tiny_llama(**_LLAMA, tie_word_embeddings=False),
    "mistral": lambda: tiny_mistral(**_LLAMA),
    "qwen2": lambda: tiny_qwen2(**_LLAMA),
}
_QUICK = {("roberta", Precision.INT8), ("gpt2", Precision.INT4)}
CASES = [
    pytest.param(
        tiny,
        precision,
        id=f"{family} {precision}",
        marks=[] if (family, precision) in _QUICK else [pytest.mark.full],
    )
    for precision in (Precision.INT8, Precision.INT4)
    for family, tiny in (ENCODERS | DECODERS).items()
]
PRECISIONS = (Precision.INT8, Precision.INT4)


def _build(checkpoint: Path, output: Path, precision: Precision, **options: Any) -> None:
    wanted = BuildOptions(output, "tiny", precision=precision, **options)
    build(resolve_source(str(checkpoint)), wanted, SilentSteps(), gate=check_artefact)


@pytest.mark.parametrize(("tiny", "precision"), CASES)
def test_a_family_in_few_bits(
    tiny: Callable[[], Any], precision: Precision, tmp_path: Path
) -> None:
    model = tiny()
    pooling = None if model.can_generate() else PoolingMode.MEAN
    checkpoint = save(model, tmp_path / "checkpoint")
    _build(checkpoint, tmp_path / "artefact", precision, pooling=pooling)
    artefact = Artefact.open(tmp_path / "artefact")
    assert artefact.manifest.precision is precision
    assert not artefact.manifest.parity.accepted
    quantiser = recipe_of(artefact.manifest).quantiser
    assert quantiser is not None
    held = {each.name for each in quantiser.read(artefact.graph(artefact.manifest.kind))}
    assert len(held) >= 2 * 4 + 1  # four products a layer at least, and the table


@pytest.mark.parametrize("precision", PRECISIONS)
def test_no_weight_is_left_in_fp32(precision: Precision) -> None:
    for artefact in (quantised_encoder_artefact(precision), quantised_decoder_artefact(precision)):
        opened = Artefact.open(artefact)
        graph = opened.graph(opened.manifest.kind)
        large = [
            name
            for name, value in graph.initializers.items()
            if value.const_value is not None
            and value.const_value.dtype.numpy() == np.float32
            and len(value.const_value.shape) == 2
            and not name.endswith(".scales")
        ]
        assert all(set(name.split(".")) & {"positions", "types", "rotary"} for name in large), large


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_artefact_is_verified_again_by_itself_and_with_its_source(
    precision: Precision, tmp_path: Path
) -> None:
    artefact = quantised_decoder_artefact(precision)
    opened = Artefact.open(artefact)
    bound = opened.manifest.parity.tolerance
    assert not replay(opened, bound, SilentSteps()).failures
    source = resolve_source(str(write_decoder(tmp_path / "checkpoint")))
    report = verify_against(source, artefact, opened, bound, SilentSteps(), gate=check_artefact)
    assert [str(check) for check in report.failures] == []


def test_fewer_bits_take_less_room() -> None:
    sizes = [
        load_manifest(artefact).files["decoder.data"].size
        for artefact in (
            decoder_artefact(),
            quantised_decoder_artefact(Precision.INT8),
            quantised_decoder_artefact(Precision.INT4),
        )
    ]
    fixed = 2 * 512 * 8 * 4  # the rotary tables
    full, eight, four = (size - fixed for size in sizes)
    assert four < eight < full / 3


def test_drift_beyond_the_bound_is_refused_and_can_be_accepted(tmp_path: Path) -> None:
    """A gate that takes the bounds of int8 for int4."""
    checkpoint = write_decoder(tmp_path / "checkpoint")
    output = tmp_path / "artefact"

    def strict(task: GateTask, steps: Steps) -> ParityReport:
        report = check_artefact(task, steps)
        checks = tuple(
            replace(check, bound=-1.0, accepted=task.accepts_drift)
            if check.name == "drift"
            else check
            for check in report.checks
        )
        return replace(report, checks=checks)

    wanted = BuildOptions(output, "tiny", precision=Precision.INT4)
    source = resolve_source(str(checkpoint))
    with pytest.raises(ParityFailure) as caught:
        build(source, wanted, SilentSteps(), strict)
    assert {check.name for check in caught.value.report.failures} == {"drift"}
    assert not output.exists()
    build(source, replace(wanted, accept_drift=True), SilentSteps(), strict)
    manifest = load_manifest(output)
    assert len(manifest.parity.accepted) == 2
    assert "perplexity" in manifest.parity.accepted[0]
    checks = json.loads((output / PARITY_FILE).read_bytes())["checks"]
    accepted = [check for check in checks if check["accepted"]]
    assert [check["name"] for check in accepted] == ["drift", "drift"]


def test_encoders_are_near_what_they_were() -> None:
    """The drift that a report shows is of the graph: int4 has moved further than int8."""
    lost = []
    for precision in PRECISIONS:
        artefact = quantised_encoder_artefact(precision)
        report = ParityReport.from_bytes((artefact / PARITY_FILE).read_bytes())
        (worst,) = [check for check in report.checks if "at worst" in check.shape]
        assert worst.difference is not None
        lost.append(worst.difference)
    assert 0 < lost[0] < lost[1]
    assert encoder_artefact() != quantised_encoder_artefact(Precision.INT8)
