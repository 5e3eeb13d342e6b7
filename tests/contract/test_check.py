"""--check: it loads, has every model answer, and says by its exit code whether that worked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.artefacts import (
    decoder_artefact,
    encoder_artefact,
    read_weight,
    reseal,
    two_vocabularies_artefact,
    weight_names,
    write_weight,
)
from tests.e2e.server_process import starting_server


def test_good_artefacts_answer_a_request_each() -> None:
    artefacts = [encoder_artefact(), decoder_artefact(), two_vocabularies_artefact()]
    with starting_server(artefacts, "--check") as server:
        assert server.wait() == 0, server.log()
        [line] = server.events("checked")
        answered = [(each["method"], each["model"]) for each in server.events("request")]
    both = "tiny-two-vocabularies"
    assert [model["name"] for model in line["models"]] == ["tiny-encoder", "tiny-decoder", both]
    assert answered == [
        ("Embed", "tiny-encoder"),
        ("Generate", "tiny-decoder"),
        ("Embed", both),
        ("Generate", both),
    ]


def test_a_session_that_does_not_open_fails(tmp_path: Path) -> None:
    directory = shutil.copytree(decoder_artefact(), tmp_path / "damaged")
    graph = directory / "decoder.onnx"
    graph.write_bytes(graph.read_bytes()[:1000])
    reseal(directory)
    assert_fails(directory, says=graph.name)


@pytest.mark.parametrize(
    ("artefact", "says"),
    [
        (encoder_artefact, "tiny-encoder: the model's output is not finite"),
        (decoder_artefact, "tiny-decoder: a request ended with INTERNAL: the model's output"),
    ],
)
def test_a_model_that_loads_and_cannot_answer_fails(
    artefact: Callable[[], Path], says: str, tmp_path: Path
) -> None:
    directory = shutil.copytree(artefact(), tmp_path / "useless")
    for name in weight_names(directory):
        write_weight(directory, name, np.full_like(read_weight(directory, name), np.nan))
    reseal(directory)
    assert_fails(directory, says=says)


def assert_fails(directory: Path, *, says: str) -> None:
    """A check ends with 1, and its last line says why."""
    with starting_server([directory], "--check") as server:
        assert server.wait() == 1, server.log()
        assert says in server.log().splitlines()[-1]
        assert "Traceback" not in server.log()
