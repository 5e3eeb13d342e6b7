"""int8 products with one scale a token: near, the same in any company, and read as written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from export.artefact import Artefact
from export.build import build
from export.build_options import BuildOptions
from export.encoder_checks import random_texts, run_encoder
from export.encoder_graph import encoder_graph
from export.gate import check_artefact
from export.graph import write_graph
from export.manifest import Device, Precision, load_manifest
from export.progress import SilentSteps
from export.session import open_session
from export.session_settings import session_settings
from export.source import resolve_source
from export.token_quantiser import PRODUCT, TokenQuantiser
from model.config import Pooling, PoolingMode
from tests.artefacts import quantised_encoder_artefact, read_weight
from tests.checkpoints import ENCODER, tiny_checkpoint
from tests.model.checkpoints.tiny_references import ENCODERS, save

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


def test_a_text_has_the_same_vector_in_any_company(artefact: Artefact) -> None:
    """PAD-03: alone, among its copies, among long ones."""
    session = artefact.session("encoder")
    text, *others = random_texts(artefact.manifest.vocabulary_size, [8, *[256] * 31])
    alone = run_encoder(session, [text])[0]
    for batch in ([text] * 32, [text, *others], [*others, text]):
        row = next(index for index, each in enumerate(batch) if each is text)
        found = run_encoder(session, batch)[row]
        np.testing.assert_allclose(found, alone, rtol=0, atol=1e-6 * float(np.linalg.norm(alone)))


def test_the_report_states_drift_and_bounds() -> None:
    manifest = load_manifest(directory())
    assert manifest.precision is Precision.INT8_DYNAMIC
    assert manifest.parity.checks > 40


@pytest.mark.full
@pytest.mark.parametrize("family", ENCODERS)
def test_a_family_passes_its_gate(family: str, tmp_path: Path) -> None:
    checkpoint = save(ENCODERS[family](), tmp_path / "checkpoint")
    options = BuildOptions(
        tmp_path / "artefact",
        "tiny",
        precision=Precision.INT8_DYNAMIC,
        pooling=PoolingMode.MEAN,
    )
    build(resolve_source(str(checkpoint)), options, SilentSteps(), gate=check_artefact)
    assert not load_manifest(tmp_path / "artefact").parity.accepted


def test_a_token_that_is_not_finite_spoils_its_own_text_alone(tmp_path: Path) -> None:
    """PAD-02: nothing rounds it to a number that looks right."""
    checkpoint = tiny_checkpoint(ENCODER)
    checkpoint.tensors["encoder.embedding.tokens.weight"][7] = torch.nan
    graph = encoder_graph(checkpoint.build(), Pooling(PoolingMode.MEAN, normalize=True))
    spec = write_graph(graph, tmp_path, QUANTISER)
    files = {name: (tmp_path / name).read_bytes() for name in (spec.file, *spec.weights)}
    session = open_session(spec, files, session_settings(Device.CPU))
    texts = [np.array(ids) for ids in ([20, 21, 22], [30, 7, 31], [40, 41])]
    finite = np.isfinite(run_encoder(session, texts)).all(axis=1)
    assert finite.tolist() == [True, False, True]
