"""int8 products with one scale a token: near, the same in any company, and read as written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from export.artefact import Artefact
from export.encoder_checks import random_texts, run_encoder
from export.manifest import Precision, load_manifest
from export.token_quantiser import PRODUCT, TokenQuantiser
from tests.artefacts import quantised_encoder_artefact, read_weight

QUANTISER = TokenQuantiser(worst_error=0.5001)
NAME = "encoder.blocks.0.feed_forward.up.weight"


@pytest.fixture(scope="module")
def artefact() -> Artefact:
    return Artefact.open(directory())


def directory() -> Path:
    return quantised_encoder_artefact(Precision.INT8_DYNAMIC)


def random_weight(rows: int = 6, columns: int = 9) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)


def test_each_output_has_a_scale_and_errs_by_half_a_step() -> None:
    weight = random_weight() * np.arange(6, dtype=np.float32)[:, None]  # one of zeros
    stored = QUANTISER.encode(NAME, weight)
    assert stored is not None
    assert stored.parts["values"].dtype == np.int8
    assert stored.parts["values"].shape == (9, 6)
    assert np.abs(stored.parts["values"]).max() == 127
    assert (np.abs(stored.restored - weight) <= stored.steps * QUANTISER.worst_error).all()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("encoder.blocks.0.feed_forward.up.bias", (64,)),
        ("encoder.embedding.positions.table", (64, 64)),
        ("encoder.embedding.types.weight", (2, 64)),
    ],
)
def test_what_is_no_product_and_no_token_table_stays(name: str, shape: tuple[int, ...]) -> None:
    assert QUANTISER.encode(name, np.ones(shape, np.float32)) is None


def test_every_product_with_a_weight_is_in_int8(artefact: Artefact) -> None:
    graph = artefact.graph("encoder")
    products = [node for node in graph if node.op_type == PRODUCT]
    assert len(products) == 2 * 6  # layers; query, key, value, output, up, down
    assert not [node for node in graph if node.op_type == "MatMul"]
    tables = [node for node in graph if node.op_type == "GatherBlockQuantized"]
    assert len(tables) == 1


def test_what_is_written_is_read_again(artefact: Artefact) -> None:
    graph = artefact.graph("encoder")
    (held,) = [held for held in QUANTISER.read(graph) if held.name == NAME]
    values, scales = (
        read_weight(directory(), f"{NAME}.values"),
        read_weight(directory(), f"{NAME}.scales"),
    )
    assert set(held.initializers) == {f"{NAME}.values", f"{NAME}.scales"}
    np.testing.assert_array_equal(held.weight.restored, values.T * scales[:, None])
    assert isinstance(graph, ir.Graph)


def test_a_text_has_the_same_vector_in_any_company(artefact: Artefact) -> None:
    """PAD-03: alone, among its copies, among long ones."""
    session = artefact.session("encoder")
    text, *others = random_texts(artefact.manifest.vocabulary_size, [8, *[256] * 31])
    alone = run_encoder(session, [text])[0]
    for batch in ([text] * 32, [text, *others], [*others, text]):
        row = next(index for index, each in enumerate(batch) if each is text)
        found = run_encoder(session, batch)[row]
        np.testing.assert_allclose(found, alone, rtol=0, atol=1e-6 * np.linalg.norm(alone))


def test_the_report_states_drift_and_bounds() -> None:
    manifest = load_manifest(directory())
    assert manifest.precision is Precision.INT8_DYNAMIC
    assert manifest.parity.checks > 40
