"""Every family in every precision of few bits: built, verified by the whole gate, and small."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.artefact import Artefact
from export.build import ParityFailure, build
from export.build_options import BuildOptions
from export.encoder_checks import random_texts, run_encoder
from export.gate import check_artefact
from export.gate_task import GateTask
from export.generation_drift import GenerationBounds
from export.manifest import PARITY_FILE, Precision, load_manifest
from export.parity import Check, ParityReport
from export.progress import SilentSteps, Steps
from export.recipe import RECIPES, recipe_of
from export.source import resolve_source
from export.verify import replay, verify_against
from model.config import PoolingMode
from tests.artefacts import (
    decoder_artefact,
    quantised_decoder_artefact,
    quantised_encoder_artefact,
)
from tests.checkpoints import VOCABULARY, write_decoder, write_encoder
from tests.model.checkpoints.tiny_references import FAMILIES, save

# Rows of whole blocks, and heads that the attention operator takes.
_BERT = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
_LLAMA = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
}
_BART = {"d_model": 64, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96, "decoder_layers": 2}
SIZES: dict[str, dict[str, Any]] = {
    "bert": _BERT,
    "distilbert": {"dim": 64, "hidden_dim": 96, "n_layers": 2},
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "gpt2": {"n_embd": 64, "n_head": 4, "n_layer": 2},
    "llama": _LLAMA | {"tie_word_embeddings": False},
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "bart": _BART,
    "marian": _BART,
    "t5": {"d_model": 64, "d_ff": 96, "num_layers": 1, "num_decoder_layers": 1},
}
_QUICK = {
    ("roberta", Precision.INT8),
    ("gpt2", Precision.INT4),
    ("t5", Precision.INT8),
}
CASES = [
    pytest.param(
        family, precision, marks=[] if (family, precision) in _QUICK else [pytest.mark.full]
    )
    for precision in (Precision.INT8, Precision.INT4)
    for family in FAMILIES
]
PRECISIONS = (Precision.INT8, Precision.INT4)


def _build(checkpoint: Path, output: Path, precision: Precision, **options: Any) -> None:
    wanted = BuildOptions(output, "tiny", precision=precision, **options)
    build(resolve_source(str(checkpoint)), wanted, SilentSteps(), gate=check_artefact)


@pytest.mark.parametrize(("family", "precision"), CASES)
def test_a_family_in_few_bits(family: str, precision: Precision, tmp_path: Path) -> None:
    model = FAMILIES[family](**SIZES[family])
    pooling = None if model.can_generate() else PoolingMode.MEAN
    checkpoint = save(model, tmp_path / "checkpoint")
    _build(checkpoint, tmp_path / "artefact", precision, pooling=pooling)
    artefact = Artefact.open(tmp_path / "artefact")
    assert artefact.manifest.precision is precision
    assert not artefact.manifest.parity.accepted
    quantiser = recipe_of(artefact.manifest).quantiser
    assert quantiser is not None
    held = {
        each.name
        for role in artefact.manifest.graphs
        for each in quantiser.read(artefact.graph(role))
    }
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


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("length", [1, 2, 8, 128])
def test_a_vector_does_not_depend_on_the_texts_beside_it(length: int, precision: Precision) -> None:
    """PAD-03; and whatever row of the products' blocks of 128 a text's tokens are."""
    session = Artefact.open(quantised_encoder_artefact(precision)).session("encoder")
    text, *others = random_texts(VOCABULARY, [length, 256, 1, 2, 120, 121, 127, 128, 129])
    (alone,) = run_encoder(session, [text])
    batches = [[text] * 32, [text, *[others[0]] * 31], *([text, other] for other in others)]
    for batch in batches:
        assert np.linalg.norm(run_encoder(session, batch)[0] - alone) <= 1e-6
        assert np.linalg.norm(run_encoder(session, batch[::-1])[-1] - alone) <= 1e-6


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


def test_drift_beyond_the_bound_fails_and_can_be_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artefact = quantised_decoder_artefact(Precision.INT4)
    manifest = load_manifest(artefact)
    recipe = recipe_of(manifest)
    assert recipe.drift is not None
    strict = replace(recipe.drift, generation=GenerationBounds(perplexity=-1.0, agreement=1.0))
    key = (manifest.device, manifest.precision)
    monkeypatch.setitem(RECIPES, key, replace(recipe, drift=strict))
    task = GateTask(
        artefact,
        write_decoder(tmp_path / "checkpoint"),
        manifest,
        recipe.tolerance.value,
        stores_reference=False,
    )
    report = check_artefact(task, SilentSteps())
    assert [check.name for check in report.failures] == ["drift", "drift"]
    accepted = check_artefact(replace(task, accepts_drift=True), SilentSteps())
    assert not accepted.failures
    said = accepted.summary().accepted
    assert len(said) == 2
    assert "perplexity" in said[0]
    assert not report.summary().accepted


@pytest.mark.parametrize("accept", [False, True])
def test_only_who_accepts_drift_gets_it(accept: bool, tmp_path: Path) -> None:
    moved = Check("drift", "somewhere", 0.5, 0.1)

    def gate(task: GateTask, steps: Steps) -> ParityReport:
        check = moved.accept() if task.accepts_drift else moved
        return ParityReport(task.tolerance, (check,))

    checkpoint = resolve_source(str(write_encoder(tmp_path / "checkpoint")))
    options = BuildOptions(tmp_path / "artefact", "tiny", accept_drift=accept)
    with nullcontext() if accept else pytest.raises(ParityFailure, match="1 of 1 checks failed"):
        build(checkpoint, options, SilentSteps(), gate)
    assert (tmp_path / "artefact").exists() == accept
    if accept:
        assert load_manifest(tmp_path / "artefact").parity.accepted == (str(moved),)


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
