"""Drift of targets: what the model in fp32 writes, read by the graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from export.artefact import Artefact
from export.encoder_checks import random_texts
from export.generation_drift import GenerationDrift
from export.source_checks import remember_sources
from export.target_drift import TEXT, target_drift, write_targets
from model.generate import generate_greedy
from model.transformer import Transformer
from tests.artefacts import encoder_decoder_artefact
from tests.checkpoints import ENCODER_DECODER, PAD_ID, VOCABULARY, tiny_checkpoint

ENDS = range(30, 100)  # many, so that targets of all lengths end


@pytest.fixture(scope="module")
def artefact() -> Artefact:
    return Artefact.open(encoder_decoder_artefact())


@pytest.fixture
def model() -> Transformer:
    return tiny_checkpoint(ENCODER_DECODER).build()


def _drift(artefact: Artefact, model: Transformer) -> GenerationDrift:
    return target_drift(
        model,
        artefact.session("encoder"),
        artefact.session("decoder"),
        artefact.manifest.graphs["decoder"],
        artefact.tokenizer,
        artefact.manifest.limits,
        PAD_ID,
        ENDS,
    )


def test_targets_are_those_of_the_oracle_up_to_their_ends(model: Transformer) -> None:
    sources = random_texts(VOCABULARY, [3, 40, 1, 17, 9])
    written = write_targets(model, sources, PAD_ID, ENDS, positions=12)
    assert len(set(written.lengths.tolist())) > 1
    for row, source in enumerate(sources):
        remembered = remember_sources(model, [source])
        wanted = generate_greedy(model, [PAD_ID], 12, eos_ids=ENDS, source=remembered)
        length = written.lengths[row]
        assert written.tokens[row, : length + 1].tolist() == [PAD_ID, *wanted]
        chosen = written.logits[:length, row].argmax(axis=-1)
        np.testing.assert_array_equal(chosen, wanted)


def test_graphs_in_fp32_have_not_moved(artefact: Artefact, model: Transformer) -> None:
    drift = _drift(artefact, model)
    assert drift.perplexity == pytest.approx(drift.wanted_perplexity, rel=1e-4)
    assert drift.agreement > 0.999
    assert drift.text == TEXT


def test_another_model_has_moved(artefact: Artefact, model: Transformer) -> None:
    with torch.no_grad():
        model.decoder.head.weight.neg_()  # every logit is turned round, but for its bias
    drift = _drift(artefact, model)
    assert drift.agreement < 0.1
    assert drift.perplexity > 2 * drift.wanted_perplexity
