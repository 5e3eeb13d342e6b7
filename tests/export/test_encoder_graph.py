"""The padding-free encoder graph against eager PyTorch."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from export.encoder_checks import random_texts, reference_embeddings, run_encoder
from export.manifest import load_manifest
from export.packing import pack
from model.config import Activation, Norm, NormPlacement, Pooling, PoolingMode, Positions
from tests.artefacts import encoder_artefact, read_weight, write_weight
from tests.checkpoints import ENCODER
from tests.export.graphs import SHAPES, EncoderPair, encoder_pair, open_graph, tiny_encoder_pair

_VARIANTS = {
    "rotary, grouped, RMSNorm": (
        replace(
            ENCODER,
            positions=Positions.ROTARY,
            kv_heads=2,
            norm=Norm.RMS,
            norm_placement=NormPlacement.PRE,
            final_norm=True,
            token_types=0,
            gated=True,
            activation=Activation.SILU,
        ),
        Pooling(PoolingMode.MAX, normalize=False),
    ),
    "sinusoidal, scaled, no biases": (
        replace(
            ENCODER,
            positions=Positions.SINUSOIDAL,
            embedding_scale=8.0,
            attention_bias=False,
            output_bias=False,
            ff_bias=False,
            activation=Activation.RELU,
        ),
        Pooling(PoolingMode.CLS, normalize=True),
    ),
    "learned with an offset": (
        replace(ENCODER, position_offset=2, activation=Activation.GELU_TANH),
        Pooling(PoolingMode.MEAN, normalize=False),
    ),
}


@pytest.fixture(scope="module")
def bert() -> EncoderPair:
    return tiny_encoder_pair()


# RoBERTa's build has learned positions with an offset too.
_PARAMETERS = [
    pytest.param(name, marks=[pytest.mark.full] if name == "learned with an offset" else [])
    for name in _VARIANTS
]


@pytest.mark.parametrize("variant", _PARAMETERS)
def test_every_variant_agrees(variant: str, tmp_path: Path) -> None:
    pair = encoder_pair(*_VARIANTS[variant], tmp_path)
    texts = random_texts(ENCODER.vocab_size, [3, 1, 40, 17])
    wanted = reference_embeddings(pair.model, pair.pooling, texts)
    np.testing.assert_allclose(run_encoder(pair.session, texts), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("batch", "longest"), SHAPES)
def test_every_shape_agrees(bert: EncoderPair, batch: int, longest: int) -> None:
    lengths = [max(1, longest - 13 * row) for row in range(batch)]
    texts = random_texts(ENCODER.vocab_size, lengths)
    wanted = reference_embeddings(bert.model, bert.pooling, texts)
    np.testing.assert_allclose(run_encoder(bert.session, texts), wanted, rtol=0, atol=1e-5)


def test_a_text_does_not_depend_on_its_neighbours(bert: EncoderPair) -> None:
    text, *others = random_texts(ENCODER.vocab_size, [8, *[8] * 31, *[256] * 31])
    alone = run_encoder(bert.session, [text])[0]
    for neighbours in (others[:31], others[31:]):
        for place in (0, 16, 31):
            batch = [*neighbours[:place], text, *neighbours[place:]]
            together = run_encoder(bert.session, batch)[place]
            assert np.abs(together - alone).max() <= 1e-6 * np.linalg.norm(alone)


def test_what_padding_cells_hold_does_not_matter(bert: EncoderPair) -> None:
    texts = random_texts(ENCODER.vocab_size, [9, 2, 5])
    inputs = pack(texts)
    padding = np.arange(9) >= inputs["lengths"][:, None]
    wanted = run_encoder(bert.session, texts)
    inputs["pad_map"][padding] = len(inputs["input_ids"]) - 1
    found = bert.session.run(None, inputs)[0]
    np.testing.assert_array_equal(found, wanted)


def test_a_text_that_is_not_finite_spoils_no_other(tmp_path: Path) -> None:
    bad_id, artefact = 7, tmp_path / "artefact"
    shutil.copytree(encoder_artefact(), artefact)
    table = read_weight(artefact, "encoder.embedding.tokens.weight")
    table[bad_id] = np.inf
    write_weight(artefact, "encoder.embedding.tokens.weight", table)
    session = open_graph(artefact, load_manifest(artefact).graphs["encoder"])
    texts = [ids[ids != bad_id] for ids in random_texts(ENCODER.vocab_size, [20, 30])]
    bad = np.array([5, bad_id, 9])
    wanted = run_encoder(session, texts)
    for place in range(3):
        together = run_encoder(session, [*texts[:place], bad, *texts[place:]])
        assert np.isnan(together[place]).all()
        np.testing.assert_allclose(np.delete(together, place, 0), wanted, rtol=0, atol=1e-6)
