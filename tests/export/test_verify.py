"""verify and inspect, in this process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from export.artefact import Artefact
from export.gate import check_artefact
from export.inspection import inspect_artefact, render
from export.manifest import GraphSpec, Limits, Manifest, ManifestError, TensorSpec
from export.progress import SilentSteps
from export.session import SessionError
from export.source import resolve_source
from export.structure import check_structure
from export.verify import open_verified, replay, verify_against
from tests.artefacts import (
    decoder_artefact,
    encoder_artefact,
    encoder_decoder_artefact,
    move_weights,
    read_weight,
    reseal,
    write_weight,
)
from tests.checkpoints import DECODER, random_tensors, write_decoder
from tests.damages import DAMAGES, Damage
from tests.file_layouts import linked, unprivileged


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    shutil.copytree(decoder_artefact(), tmp_path / "decoder")
    return tmp_path / "decoder"


@pytest.mark.parametrize("built", [encoder_artefact, decoder_artefact, encoder_decoder_artefact])
def test_the_stored_reference_agrees(built: Callable[[], Path]) -> None:
    artefact = open_verified(built(), SilentSteps())
    report = replay(artefact, 1e-4, SilentSteps())
    assert report.checks
    assert not report.failures
    assert replay(artefact, 1e-12, SilentSteps()).failures


def test_the_stored_reference_finds_a_fault_that_shows(decoder: Path) -> None:
    name = "decoder.blocks.1.attention.output.weight"
    write_weight(decoder, name, read_weight(decoder, name) * 2)
    reseal(decoder)
    assert replay(Artefact.open(decoder), 1e-4, SilentSteps()).failures


def test_another_source_is_refused_by_the_files_that_differ(decoder: Path, tmp_path: Path) -> None:
    other = resolve_source(str(write_decoder(tmp_path / "other", seed=1)))
    with pytest.raises(ManifestError, match=r"another source; these differ: model\.safetensors$"):
        verify_against(other, decoder, Artefact.open(decoder), 1e-4, SilentSteps())


@pytest.mark.parametrize("layout", ["hub cache", "mounted volume", "hard link"])
def test_links_to_the_listed_content_are_followed(tmp_path: Path, layout: str) -> None:
    """BAD-03, as the server has it."""
    artefact = open_verified(linked(decoder_artefact(), tmp_path, layout), SilentSteps())
    assert not replay(artefact, 1e-4, SilentSteps()).failures
    source = resolve_source(str(write_decoder(tmp_path / "checkpoint")))
    report = verify_against(
        source, tmp_path / "artefact", artefact, 1e-4, SilentSteps(), check_artefact
    )
    assert not report.failures
    assert {"weights", "stored reference", "stored report"} <= {each.name for each in report.checks}
    assert inspect_artefact(artefact).parity


def test_what_was_verified_is_what_is_read(decoder: Path) -> None:
    """Whatever takes the files' place between the two."""
    artefact = open_verified(decoder, SilentSteps())
    for path in decoder.iterdir():
        path.unlink()
        path.write_bytes(b"another file")
    assert not replay(artefact, 1e-4, SilentSteps()).failures
    assert inspect_artefact(artefact).parity


@pytest.mark.parametrize("place", ["a pipe", "a link elsewhere", "a link to nothing", "a folder"])
def test_what_is_not_the_listed_file_is_refused(decoder: Path, tmp_path: Path, place: str) -> None:
    """BAD-03: reading a pipe would wait for ever."""
    path = decoder / "decoder.data"
    path.unlink()
    match place:
        case "a pipe":
            os.mkfifo(path)
        case "a link elsewhere":
            (tmp_path / "elsewhere").write_bytes(b"another file")
            path.symlink_to(tmp_path / "elsewhere")
        case "a link to nothing":
            path.symlink_to(tmp_path / "nothing")
        case "a folder":
            path.mkdir()
    with pytest.raises(ManifestError, match=r"^decoder\.data (is missing or not|has 12 bytes)"):
        open_verified(decoder, SilentSteps())


@pytest.mark.parametrize("name", ["manifest.json", "decoder.onnx", "decoder.data"])
def test_a_file_that_may_not_be_read_is_named(decoder: Path, name: str) -> None:
    """BAD-01: no permission."""
    (decoder / name).chmod(0)
    with (
        unprivileged(decoder),
        pytest.raises(ManifestError, match=rf"{name}.* Permission denied"),
    ):
        open_verified(decoder, SilentSteps())


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.name for damage in DAMAGES])
def test_damage_is_refused(decoder: Path, damage: Damage) -> None:
    """BAD-01, by the command line's `verify`."""
    damage.do(decoder / damage.file)
    with pytest.raises(ManifestError, match=damage.file) as caught:
        open_verified(decoder, SilentSteps())
    assert "\n" not in str(caught.value)


def _garble_reference(artefact: Path) -> None:
    (artefact / "reference.npz").write_bytes(b"PK")


def _keep_weights_in(location: str) -> Callable[[Path], object]:
    return lambda artefact: move_weights(artefact, location)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        *(
            (lambda artefact, damage=damage: damage.do(artefact / damage.file), "decoder")
            for damage in DAMAGES
            if damage.spoils_graph
        ),
        (_garble_reference, r"reference\.npz cannot be read"),
        (_keep_weights_in("../outside.data"), r"in \.\./outside\.data, which is not its file"),
        (_keep_weights_in("/dev/zero"), "in /dev/zero, which is not its file"),
        (_keep_weights_in("manifest.json"), r"in manifest\.json, which is not its file"),
        (_keep_weights_in("x/../decoder.data"), "which is not its file"),
    ],
)
def test_damage_is_refused_though_the_digests_fit(
    decoder: Path, spoil: Callable[[Path], object], message: str
) -> None:
    """BAD-01 and BAD-03: weights in a parent, a device or a file that is no weights file."""
    spoil(decoder)
    reseal(decoder)
    with pytest.raises((ManifestError, SessionError), match=message):
        replay(open_verified(decoder, SilentSteps()), 1e-4, SilentSteps())


def test_a_parity_report_that_is_none_is_named(decoder: Path) -> None:
    (decoder / "parity.json").write_text('{"checks": [1]}')
    reseal(decoder)
    with pytest.raises(ManifestError, match=r"parity\.json is no parity report"):
        inspect_artefact(Artefact.open(decoder))


def _rename_input(manifest: Manifest) -> Manifest:
    graph = manifest.graphs["decoder"]
    first, *others = graph.inputs
    inputs = (TensorSpec("ids", first.dtype, first.shape), *others)
    changed = GraphSpec(graph.file, graph.weights, inputs, graph.outputs)
    return replace(manifest, graphs=manifest.graphs | {"decoder": changed})


def _move_weights(manifest: Manifest) -> Manifest:
    graph = manifest.graphs["decoder"]
    changed = replace(graph, weights=("tokenizer.json",))
    return replace(manifest, graphs=manifest.graphs | {"decoder": changed})


def test_structure_names_what_does_not_fit(decoder: Path) -> None:
    artefact = Artefact.open(decoder)
    manifest = artefact.manifest
    check_structure(artefact)
    without_mover = {"decoder": manifest.graphs["decoder"]}
    for change, message in (
        (_rename_input(manifest), r"lacks ids int64 .*; decoder\.onnx has input_ids int64"),
        (_move_weights(manifest), r"decoder\.onnx keeps weights in decoder\.data, which is not"),
        (replace(manifest, opset=23), "has opset 24 instead of 23"),
        (replace(manifest, graphs=without_mover), "kind decoder with graphs decoder"),
        (replace(manifest, limits=Limits(9999, 0)), r"limits\.max_input is 9999; config\.max_pos"),
    ):
        with pytest.raises(ManifestError, match=message):
            check_structure(replace(artefact, manifest=change))
    broken = {**artefact.files, "decoder.onnx": b"not a graph"}
    with pytest.raises(ManifestError, match=r"decoder\.onnx is not a graph"):
        check_structure(replace(artefact, files=broken))


def test_inspection_counts(decoder: Path) -> None:
    inspection = inspect_artefact(Artefact.open(decoder))
    per_position = 2 * DECODER.decoder_layers * DECODER.kv_heads * DECODER.head_dim * 4
    assert inspection.cache_bytes_per_position == per_position
    graphs = {graph.role: graph for graph in inspection.graphs}
    assert graphs["decoder"].operators["GroupQueryAttention"] == DECODER.decoder_layers
    assert graphs["mover"].parameters == 0
    tables = DECODER.max_positions * DECODER.head_dim  # cosines and sines, half a head wide each
    tensors = sum(tensor.numel() for tensor in random_tensors(DECODER).values())
    weights = sum((decoder / name).stat().st_size for name in ("decoder.data", "decoder.onnx"))
    assert graphs["decoder"].bytes == weights
    assert graphs["decoder"].parameters == tensors + tables
    assert sum(graphs["decoder"].parameters_by_part.values()) == tensors + tables
    assert graphs["decoder"].bytes_by_dtype["float32"] == 4 * (tensors + tables)
    weights_row = next(row for row in inspection.parity if row.check == "weights")
    assert (weights_row.file, weights_row.difference) == ("decoder.onnx", 0.0)
    assert {"prefill", "decode", "greedy tokens"} <= {row.check for row in inspection.parity}
    assert json.loads(json.dumps(inspection.to_json()))["manifest"]["kind"] == "decoder"
    console = Console(width=200, record=True, file=StringIO())
    console.print(render(inspection))
    text = console.export_text()
    assert "past.*.key" in text
    assert f"{per_position} bytes a position" in text


def test_an_encoder_has_no_cache() -> None:
    assert inspect_artefact(Artefact.open(encoder_artefact())).cache_bytes_per_position == 0
