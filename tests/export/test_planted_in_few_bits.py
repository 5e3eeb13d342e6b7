"""What was planted in an artefact of few bits is found, and by what, though the digests fit.

Faults that any artefact can have are planted beside; here are those of packed weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from export.artefact import Artefact
from export.gate import check_artefact
from export.gate_task import GateTask
from export.manifest import Precision, load_manifest
from export.parity import Check
from export.progress import SilentSteps
from export.recipe import recipe_of
from export.weight_checks import WeightChecks
from model.checkpoints import load_checkpoint
from tests.artefacts import (
    decoder_artefact,
    quantised_decoder_artefact,
    quantised_encoder_artefact,
    quantised_encoder_decoder_artefact,
    read_weight,
    reseal,
    weight_names,
    write_weight,
)
from tests.checkpoints import write_decoder, write_encoder, write_encoder_decoder

PRECISIONS = (Precision.INT8, Precision.INT4)
QUERY = "decoder.blocks.0.attention.query.weight"
OTHER_QUERY = "decoder.blocks.1.attention.query.weight"
TABLE = "decoder.embedding.tokens.weight"


def _copy(artefact: Path, directory: Path) -> Path:
    target = directory / "artefact"
    shutil.copytree(artefact, target)
    return target


def _weight_failures(checkpoint: Path, artefact: Path) -> list[Check]:
    reseal(artefact)
    opened = Artefact.open(artefact)
    recipe = recipe_of(opened.manifest)
    checks = WeightChecks(load_checkpoint(checkpoint), recipe.quantiser, recipe.dtype)
    return [check for check in checks.compare(opened) if not check.passed]


def _change(name: str, change: Callable[[NDArray[np.generic]], object]) -> Callable[[Path], None]:
    def plant(artefact: Path) -> None:
        values = read_weight(artefact, name)
        change(values)
        write_weight(artefact, name, values)

    return plant


def _flip_lowest_bit(values: NDArray[np.generic]) -> None:
    values.view(np.uint8).reshape(-1)[1234] ^= 1


def _grow(scales: NDArray[np.generic]) -> None:
    scales[3, 1] *= np.float32(1.0001)


def _swap(artefact: Path, first: str, second: str) -> None:
    values = read_weight(artefact, first)
    write_weight(artefact, first, read_weight(artefact, second))
    write_weight(artefact, second, values)


def _swap_whole_weights(artefact: Path) -> None:
    for name in weight_names(artefact):
        if name.startswith(QUERY):
            _swap(artefact, name, name.replace(QUERY, OTHER_QUERY))


FAULTS: dict[str, Callable[[Path], None]] = {
    "one bit of a packed weight flipped": _change(f"{QUERY}.values", _flip_lowest_bit),
    "one bit of the token table flipped": _change(f"{TABLE}.values", _flip_lowest_bit),
    "a scale a little larger": _change(f"{QUERY}.scales", _grow),
    "a scale of the output head a little larger": _change(f"{TABLE}.scales", _grow),
    "the scales of two weights swapped": lambda artefact: _swap(
        artefact, f"{QUERY}.scales", f"{OTHER_QUERY}.scales"
    ),
    "two weights of equal shape swapped": _swap_whole_weights,
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("plant", FAULTS.values(), ids=FAULTS.keys())
def test_weights_find_it(
    plant: Callable[[Path], None], precision: Precision, tmp_path: Path
) -> None:
    artefact = _copy(quantised_decoder_artefact(precision), tmp_path)
    checkpoint = write_decoder(tmp_path / "checkpoint")
    assert not _weight_failures(checkpoint, artefact)
    plant(artefact)
    assert _weight_failures(checkpoint, artefact)


def test_weights_find_another_zero_point(tmp_path: Path) -> None:
    artefact = _copy(quantised_decoder_artefact(Precision.INT4), tmp_path)
    _change(f"{QUERY}.zero_points", lambda values: values.__setitem__((0, 0), values[0, 0] ^ 1))(
        artefact
    )
    failures = _weight_failures(write_decoder(tmp_path / "checkpoint"), artefact)
    assert any("zero_points differ" in check.note for check in failures)


@pytest.mark.parametrize(
    ("kind", "precision"),
    [
        ("decoder", Precision.INT4),
        ("encoder", Precision.INT8_DYNAMIC),
        pytest.param("decoder", Precision.INT8, marks=pytest.mark.full),
        pytest.param("encoder", Precision.INT4, marks=pytest.mark.full),
        pytest.param("encoder", Precision.INT8, marks=pytest.mark.full),
        pytest.param("encoder_decoder", Precision.INT4, marks=pytest.mark.full),
    ],
)
def test_each_zeroed_tensor_is_found(kind: str, precision: Precision, tmp_path: Path) -> None:
    """What a graph holds of the source, part by part."""
    built, write = {
        "encoder": (quantised_encoder_artefact, write_encoder),
        "decoder": (quantised_decoder_artefact, write_decoder),
        "encoder_decoder": (quantised_encoder_decoder_artefact, write_encoder_decoder),
    }[kind]
    artefact, checkpoint = _copy(built(precision), tmp_path), write(tmp_path / "checkpoint")
    for role in load_manifest(artefact).graphs.keys() - {"mover"}:
        names = [
            name
            for name in weight_names(artefact, role)
            if name.startswith(("encoder.", "decoder."))
        ]
        assert len(names) > 30
        for name in names:
            good = read_weight(artefact, name, role)
            write_weight(artefact, name, np.zeros_like(good), role)
            stem = name.removesuffix(".values").removesuffix(".scales").removesuffix(".zero_points")
            failures = _weight_failures(checkpoint, artefact)
            assert any(check.shape.startswith(f"{role}.onnx: {stem} ") for check in failures), name
            write_weight(artefact, name, good, role)
    assert not _weight_failures(checkpoint, artefact)


def _gate_failures(checkpoint: Path, artefact: Path) -> set[str]:
    manifest = load_manifest(artefact)
    tolerance = recipe_of(manifest).tolerance.value
    task = GateTask(artefact, checkpoint, manifest, tolerance, stores_reference=False)
    report = check_artefact(task, SilentSteps())
    return {check.name for check in report.failures}


def _edit_products(artefact: Path, edit: Callable[[onnx.NodeProto], None]) -> None:
    path = artefact / "decoder.onnx"
    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            edit(node)
    onnx.save(model, path)
    reseal(artefact)


def _lower_accuracy(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name == "accuracy_level":
            attribute.i = 0


def _exchange_layers(node: onnx.NodeProto) -> None:
    """The products of two layers read each other's query."""
    for index, name in enumerate(node.input):
        if QUERY in name:
            node.input[index] = name.replace(QUERY, OTHER_QUERY)
        elif OTHER_QUERY in name:
            node.input[index] = name.replace(OTHER_QUERY, QUERY)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_numbers_find_products_that_read_each_others_weights(
    precision: Precision, tmp_path: Path
) -> None:
    artefact = _copy(quantised_decoder_artefact(precision), tmp_path)
    _edit_products(artefact, _exchange_layers)
    failures = _gate_failures(write_decoder(tmp_path / "checkpoint"), artefact)
    assert "prefill" in failures
    assert "weights" not in failures


def test_numbers_find_products_that_depend_on_the_batch(tmp_path: Path) -> None:
    """At another accuracy a row alone takes another kernel than among others."""
    artefact = _copy(quantised_decoder_artefact(Precision.INT8), tmp_path)
    _edit_products(artefact, _lower_accuracy)
    failures = _gate_failures(write_decoder(tmp_path / "checkpoint"), artefact)
    assert "decode alone and batched" in failures


@pytest.mark.parametrize(
    ("built", "said"),
    [
        (decoder_artefact, Precision.INT8),
        (lambda: quantised_decoder_artefact(Precision.INT8), Precision.FP32),
        (lambda: quantised_decoder_artefact(Precision.INT8), Precision.INT4),
        (lambda: quantised_decoder_artefact(Precision.INT4), Precision.INT8),
    ],
)
def test_weights_find_a_manifest_that_says_another_precision(
    built: Callable[[], Path], said: Precision, tmp_path: Path
) -> None:
    artefact = _copy(built(), tmp_path)
    reseal(artefact, lambda manifest: replace(manifest, precision=said))
    assert _weight_failures(write_decoder(tmp_path / "checkpoint"), artefact)
