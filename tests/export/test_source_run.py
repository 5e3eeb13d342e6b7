"""EXP-01 for encoder-decoders: sources of every length and number, and targets of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
import pytest
import torch

from export.artefact import Artefact
from export.decoder_run import DecoderRun
from export.encoder_checks import random_texts
from export.manifest import GraphSpec
from export.source_checks import remember_sources
from export.source_run import encode_sources
from model.generate import logits
from model.transformer import Transformer
from tests.artefacts import encoder_decoder_artefact
from tests.checkpoints import ENCODER_DECODER, VOCABULARY, tiny_checkpoint
from tests.export.graphs import SHAPES


@dataclass(frozen=True)
class Sides:
    """An encoder-decoder in PyTorch and as graphs."""

    model: Transformer
    encoder: ort.InferenceSession
    decoder: ort.InferenceSession
    graph: GraphSpec


@pytest.fixture(scope="module")
def sides() -> Sides:
    artefact = Artefact.open(encoder_decoder_artefact())
    return Sides(
        tiny_checkpoint(ENCODER_DECODER).build(),
        artefact.session("encoder"),
        artefact.session("decoder"),
        artefact.manifest.graphs["decoder"],
    )


@pytest.mark.parametrize(("batch", "longest"), SHAPES)
def test_every_shape_agrees(sides: Sides, batch: int, longest: int) -> None:
    sources = random_texts(VOCABULARY, [max(1, longest - 13 * row) for row in range(batch)])
    wanted = remember_sources(sides.model, sources)
    found = encode_sources(sides.encoder, sources)
    run = DecoderRun(sides.decoder, sides.graph, batch, capacity=2, source_capacity=longest + 3)
    for row, source in enumerate(sources):
        for layer, memory in enumerate(wanted.memory):
            for half, values in memory._asdict().items():
                ours = found[f"{layer}.{half}"][row, :, : len(source)]
                theirs = values[row, :, : len(source)].numpy()
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-5)
        run.read_source(row, found, row, len(source))
    targets = np.random.default_rng(batch).integers(0, VOCABULARY, (batch, 2))
    scores = logits(sides.model, torch.from_numpy(targets), source=wanted)[0].numpy()
    for past in range(2):
        step = run.step(targets[:, past : past + 1], [past] * batch)
        np.testing.assert_allclose(step, scores[:, past], rtol=0, atol=2e-5)
