"""The tiny artefacts that other tests use."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from export.decoder_run import DecoderRun
from export.manifest import Device, load_manifest, session_settings, verify_files
from export.session import open_session
from tests.artefacts import scripted_artefact


def test_a_scripted_artefact_is_sealed_and_says_its_script(tmp_path: Path) -> None:
    artefact = scripted_artefact(tmp_path / "scripted", [7, 9, 8])
    manifest = load_manifest(artefact)
    verify_files(artefact, manifest)
    session = open_session(artefact / "decoder.onnx", session_settings(Device.CPU))
    run = DecoderRun(session, manifest.graphs["decoder"], slots=1, capacity=8)
    logits = run.step(np.array([[50, 60, 70, 80]]), [0])
    assert logits.argmax(axis=-1).tolist() == [7, 9, 8, 1]
