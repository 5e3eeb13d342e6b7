"""The tiny artefacts that other tests use."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from export.artefact import Artefact
from export.decoder_run import DecoderRun
from tests.artefacts import scripted_artefact


def test_a_scripted_artefact_is_sealed_and_says_its_script(tmp_path: Path) -> None:
    artefact = Artefact.open(scripted_artefact(tmp_path / "scripted", [7, 9, 8]))
    graph = artefact.manifest.graphs["decoder"]
    run = DecoderRun(artefact.session("decoder"), graph, slots=1, capacity=8)
    logits = run.step(np.array([[50, 60, 70, 80]]), [0])
    assert logits.argmax(axis=-1).tolist() == [7, 9, 8, 1]
