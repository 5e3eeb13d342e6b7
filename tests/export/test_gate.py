"""The gate finds what it is there to find, in weights and in numbers."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from export.gate import check_artefact
from export.gate_task import GateError, GateTask, run_gate
from export.manifest import load_manifest
from export.manifest_checks import check_manifest
from export.parity import Check, ParityReport
from export.progress import SilentSteps
from export.weight_checks import WeightChecks
from model.checkpoints import load_checkpoint
from model.checkpoints.native import save_native
from tests.artefacts import (
    decoder_artefact,
    encoder_artefact,
    encoder_decoder_artefact,
    learned_decoder_artefact,
    read_weight,
    relative_artefact,
    reseal,
    two_vocabularies_artefact,
    unverified,
    weight_names,
    write_weight,
)
from tests.checkpoints import (
    DECODER,
    ENCODER,
    ENCODER_DECODER,
    LEARNED_DECODER,
    RELATIVE_ENCODER_DECODER,
    TWO_VOCABULARIES,
    random_tensors,
    write_decoder,
    write_encoder,
    write_encoder_decoder,
    write_learned_decoder,
    write_relative_encoder_decoder,
    write_two_vocabularies,
)

_KINDS = {
    "encoder": (encoder_artefact, write_encoder, ENCODER),
    "decoder": (decoder_artefact, write_decoder, DECODER),
    "learned decoder": (learned_decoder_artefact, write_learned_decoder, LEARNED_DECODER),
    "encoder-decoder": (encoder_decoder_artefact, write_encoder_decoder, ENCODER_DECODER),
    "relative": (relative_artefact, write_relative_encoder_decoder, RELATIVE_ENCODER_DECODER),
    "two vocabularies": (two_vocabularies_artefact, write_two_vocabularies, TWO_VOCABULARIES),
}
# Those of two graphs are zeroed where every family is built.
_CASES = [
    (kind, name)
    for kind in ("encoder", "decoder", "learned decoder")
    for name in random_tensors(_KINDS[kind][2])
]


def _copies(kind: str, directory: Path) -> tuple[Path, Path]:
    """A checkpoint and the artefact that was made from it."""
    built, write, _ = _KINDS[kind]
    artefact = directory / "artefact"
    shutil.copytree(built(), artefact)
    return write(directory / "checkpoint"), artefact


def _task(checkpoint: Path, artefact: Path, tolerance: float = 1e-4) -> GateTask:
    manifest = load_manifest(artefact)
    return GateTask(artefact, checkpoint, manifest, tolerance, stores_reference=False)


def _check(checkpoint: Path, artefact: Path, tolerance: float = 1e-4) -> ParityReport:
    return check_artefact(_task(checkpoint, artefact, tolerance), SilentSteps())


def _weight_failures(checkpoint: Path, artefact: Path) -> list[Check]:
    checks = WeightChecks(load_checkpoint(checkpoint))
    return [check for check in checks.compare(unverified(artefact)) if not check.passed]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    return {kind: _copies(kind, tmp_path_factory.mktemp("copies")) for kind in _KINDS}


@pytest.mark.parametrize("kind", list(_KINDS))
def test_an_untouched_artefact_passes(kind: str, copies: dict[str, tuple[Path, Path]]) -> None:
    report = _check(*copies[kind])
    assert not report.failures
    names = {name for graph in report.traced.values() for name in graph}
    assert names == set(random_tensors(_KINDS[kind][2]))
    assert 0 < report.summary().worst_difference < 1e-4


@pytest.mark.parametrize(("kind", "name"), _CASES)
def test_each_zeroed_tensor_is_found(
    kind: str, name: str, copies: dict[str, tuple[Path, Path]]
) -> None:
    checkpoint, artefact = copies[kind]
    good = read_weight(artefact, name)
    write_weight(artefact, name, np.zeros_like(good))
    try:
        (failure,) = _weight_failures(checkpoint, artefact)
    finally:
        write_weight(artefact, name, good)
    assert name in failure.shape
    assert failure.difference == pytest.approx(np.abs(good).max())


@pytest.mark.parametrize("name", ["rotary.cos", "rotary.sin"])
def test_a_wrong_computed_table_is_found(name: str, tmp_path: Path) -> None:
    checkpoint, artefact = _copies("decoder", tmp_path)
    assert name in weight_names(artefact)
    table = read_weight(artefact, name)
    table[100, 3] += 1e-7
    write_weight(artefact, name, table)
    (failure,) = _weight_failures(checkpoint, artefact)
    assert name in failure.shape


def test_a_square_weight_that_is_not_transposed_is_found(tmp_path: Path) -> None:
    checkpoint, artefact = _copies("decoder", tmp_path)
    name = "decoder.blocks.1.attention.query.weight"
    write_weight(artefact, name, read_weight(artefact, name).T)
    (failure,) = _weight_failures(checkpoint, artefact)
    assert name in failure.shape


def test_a_tensor_that_reaches_no_graph_is_found(tmp_path: Path) -> None:
    checkpoint, artefact = _copies("decoder", tmp_path)
    loaded = load_checkpoint(checkpoint)
    extra = {"decoder.extra.weight": torch.ones(2)}
    sources = {"decoder.extra.weight": ("extra",)}
    checks = WeightChecks(
        replace(loaded, tensors=loaded.tensors | extra, sources=loaded.sources | sources)
    )
    failures = [check for check in checks.compare(unverified(artefact)) if not check.passed]
    assert [(check.shape, check.note) for check in failures] == [
        ("decoder.extra.weight", "a tensor of the source that reaches no graph")
    ]


def test_an_initializer_without_a_source_is_found(tmp_path: Path) -> None:
    checkpoint, artefact = _copies("decoder", tmp_path)
    loaded = load_checkpoint(checkpoint)
    del loaded.tensors["decoder.norm.weight"]
    checks = WeightChecks(loaded).compare(unverified(artefact))
    (failure,) = [check for check in checks if not check.passed]
    assert "decoder.norm.weight" in failure.shape
    assert failure.note == "comes from no tensor of the source"


@pytest.mark.parametrize(
    ("kind", "name", "spoil"),
    [
        ("encoder", "encoder.blocks.1.feed_forward.up.weight", lambda values: values * 10),
        ("decoder", "decoder.blocks.0.attention.value.weight", lambda values: values * 10),
    ],
)
def test_numbers_show_a_wrong_weight_too(
    kind: str,
    name: str,
    spoil: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    checkpoint, artefact = _copies(kind, tmp_path)
    write_weight(artefact, name, spoil(read_weight(artefact, name)))
    reseal(artefact)
    names = {check.name for check in _check(checkpoint, artefact).failures}
    assert {"weights", "embeddings" if kind == "encoder" else "greedy tokens"} <= names


@pytest.mark.parametrize(
    ("kind", "role", "number"),
    [
        ("encoder", "encoder", "embeddings"),
        ("decoder", "decoder", "prefill"),
        ("encoder-decoder", "encoder", "memory"),
        ("encoder-decoder", "decoder", "cached decode"),
    ],
)
def test_nan_on_both_sides_fails(kind: str, role: str, number: str, tmp_path: Path) -> None:
    checkpoint, artefact = _copies(kind, tmp_path)
    name = f"{role}.blocks.1.attention_residual.norm.weight"
    loaded = load_checkpoint(checkpoint)
    loaded.tensors[name][3] = torch.nan
    save_native(checkpoint, loaded)
    write_weight(artefact, name, loaded.tensors[name].numpy(), role)
    reseal(artefact)
    report = _check(checkpoint, artefact)
    notes = {check.name: check.note for check in report.failures}
    assert notes["weights"] == "NaN or infinity in the graph and the reference"
    assert notes[number] == "NaN or infinity in the graph and the reference"


def test_a_manifest_that_says_something_else_is_found(tmp_path: Path) -> None:
    checkpoint, artefact = _copies("decoder", tmp_path)
    reseal(artefact, lambda manifest: replace(manifest, chat_template="other", prompts={"a": "b"}))
    (artefact / "tokenizer.json").write_bytes(b"{}")
    failures = [
        check.shape
        for check in check_manifest(load_checkpoint(checkpoint), unverified(artefact))
        if not check.passed
    ]
    assert failures == ["manifest prompts", "manifest chat_template", "tokenizer.json"]


class _InterruptedSteps(SilentSteps):
    """Whoever watches loses patience while the weights are compared."""

    def advance(self, label: str) -> None:
        if label.startswith("comparing"):
            signal.raise_signal(signal.SIGINT)


def test_the_gate_process_ends_with_an_interrupted_call(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_gate(_task(*_copies("encoder", tmp_path)), _InterruptedSteps())
    assert not multiprocessing.active_children()


class _KillingSteps(SilentSteps):
    """Kills the gate's process while it compares weights."""

    def advance(self, label: str) -> None:
        for process in multiprocessing.active_children():
            process.kill()


def test_a_killed_gate_process_says_so(tmp_path: Path) -> None:
    """EXP-03: nothing is known then, so nothing passes."""
    with pytest.raises(GateError, match=r"the gate's process ended with exit code -9"):
        run_gate(_task(*_copies("encoder", tmp_path)), _KillingSteps())


def test_a_failed_gate_process_says_why(tmp_path: Path) -> None:
    _, artefact = _copies("decoder", tmp_path)
    with pytest.raises(GateError, match=r"CheckpointError: .*nothing does not exist"):
        run_gate(_task(tmp_path / "nothing", artefact), SilentSteps())
