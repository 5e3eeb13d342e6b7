"""What is not exactly what was built is not served, and the message says which file and why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from export.manifest import (
    TARGET_TOKENIZER_FILE,
    DecodingRules,
    GraphSpec,
    Limits,
    Manifest,
    SpecialIds,
    TensorSpec,
)
from server.artefact import ArtefactError, load_artefact
from tests.artefacts import (
    decoder_artefact,
    encoder_artefact,
    relative_artefact,
    reseal,
    two_vocabularies_artefact,
)
from tests.file_layouts import unprivileged

Change = Callable[[Manifest], Manifest]


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    return shutil.copytree(decoder_artefact(), tmp_path / "decoder")


@pytest.mark.parametrize("build", [encoder_artefact, decoder_artefact])
def test_an_artefact_as_it_was_built_is_taken(build: Callable[[], Path]) -> None:
    artefact = load_artefact(build())
    assert artefact.tokenizer == (build() / "tokenizer.json").read_bytes()
    assert load_artefact(build(), artefact.manifest.digest).manifest == artefact.manifest


def test_another_digest_than_the_pinned_one_is_refused(decoder: Path) -> None:
    with pytest.raises(ArtefactError, match=r"has digest sha256:\w+, but sha256:0 is expected"):
        load_artefact(decoder, "sha256:0")


@pytest.mark.parametrize("name", ["decoder.onnx", "decoder.data", "tokenizer.json", "mover.onnx"])
def test_a_flipped_byte_in_any_file_is_refused(decoder: Path, name: str) -> None:
    content = bytearray((decoder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (decoder / name).write_bytes(content)
    with pytest.raises(ArtefactError, match=f"{name} does not match its sha256"):
        load_artefact(decoder)


def test_missing_and_cut_files_are_refused(decoder: Path) -> None:
    (decoder / "mover.onnx").unlink()
    with pytest.raises(ArtefactError, match=r"mover\.onnx is missing"):
        load_artefact(decoder)
    shutil.copy(decoder_artefact() / "mover.onnx", decoder)
    with (decoder / "decoder.data").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(ArtefactError, match=r"decoder\.data has 100 bytes instead of"):
        load_artefact(decoder)


@pytest.mark.parametrize("name", ["manifest.json", "decoder.onnx", "decoder.data"])
def test_a_file_that_may_not_be_read_is_refused(decoder: Path, name: str) -> None:
    """BAD-01: no permission."""
    (decoder / name).chmod(0)
    with (
        unprivileged(decoder),
        pytest.raises(ArtefactError, match=rf"{name}.* Permission denied") as caught,
    ):
        load_artefact(decoder)
    assert "\n" not in str(caught.value)


def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(decoder: Path) -> None:
    """BAD-03: reading it would wait for ever."""
    (decoder / "decoder.data").unlink()
    os.mkfifo(decoder / "decoder.data")
    with pytest.raises(ArtefactError, match=r"decoder\.data is missing or not a regular file"):
        load_artefact(decoder)


def test_a_link_to_another_content_is_refused(decoder: Path, tmp_path: Path) -> None:
    """BAD-03: links are followed only to what the manifest lists."""
    data = decoder / "decoder.data"
    other = data.rename(tmp_path / "other")
    with other.open("r+b") as file:
        file.write(b"x")
    data.symlink_to(other)
    with pytest.raises(ArtefactError, match=r"decoder\.data does not match its sha256"):
        load_artefact(decoder)


def test_a_directory_without_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"cannot read manifest.json: No such file"):
        load_artefact(tmp_path)


def with_graph(role: str, change: Callable[[GraphSpec], GraphSpec]) -> Change:
    return lambda manifest: replace(
        manifest, graphs=manifest.graphs | {role: change(manifest.graphs[role])}
    )


def with_cache_dtype(dtype: str) -> Change:
    def change(graph: GraphSpec) -> GraphSpec:
        inputs = [
            replace(spec, dtype=dtype) if spec.name.startswith("past.") else spec
            for spec in graph.inputs
        ]
        return replace(graph, inputs=tuple(inputs))

    return with_graph("decoder", change)


def without_mover(manifest: Manifest) -> Manifest:
    return replace(manifest, graphs={"decoder": manifest.graphs["decoder"]})


def without_target_tokenizer(manifest: Manifest) -> Manifest:
    files = {name: file for name, file in manifest.files.items() if name != TARGET_TOKENIZER_FILE}
    return replace(manifest, files=files)


def with_limits(max_input: int, max_positions: int) -> Change:
    return lambda manifest: replace(manifest, limits=Limits(max_input, max_positions))


EXTRA = TensorSpec("query_seqlens", "int32", ("batch",))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda manifest: replace(manifest, decoding=DecodingRules(last_id=272)),
            "decoding.last_id is 272; the vocabulary ends at 271",
        ),
        (
            lambda manifest: replace(manifest, decoding=DecodingRules(forbidden_ids=(3, -1))),
            "decoding.forbidden_ids is -1;",
        ),
        (
            lambda manifest: replace(
                manifest, special_ids=replace(manifest.special_ids, decoder_start=0)
            ),
            "special_ids.decoder_start is 0; kind encoder_decoder needs one, and no other kind",
        ),
    ],
)
def test_ids_that_cannot_be_computed_with_are_refused(
    decoder: Path, change: Change, message: str
) -> None:
    reseal(decoder, change)
    with pytest.raises(ArtefactError, match=message):
        load_artefact(decoder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda manifest: replace(manifest, special_ids=SpecialIds(eos=(1,))),
            "special_ids.decoder_start is None; kind encoder_decoder needs one",
        ),
        (
            lambda manifest: replace(manifest, special_ids=SpecialIds(decoder_start=281)),
            "special_ids.decoder_start is 281; the vocabulary ends at 280",
        ),
        (
            lambda manifest: replace(manifest, config=manifest.config | {"vocab_size": None}),
            "config.vocab_size is None",
        ),
        (
            without_target_tokenizer,
            r"target_tokenizer\.json is not listed, but targets have their own vocabulary",
        ),
    ],
)
def test_an_encoder_decoder_needs_a_start_and_two_vocabularies(
    tmp_path: Path, change: Change, message: str
) -> None:
    directory = shutil.copytree(two_vocabularies_artefact(), tmp_path / "both")
    assert load_artefact(directory).manifest.decoding.forbidden_ids
    reseal(directory, change)
    with pytest.raises(ArtefactError, match=message):
        load_artefact(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            with_graph("decoder", lambda graph: replace(graph, inputs=(*graph.inputs, EXTRA))),
            "decoder.onnx declares inputs that this server does not know: query_seqlens",
        ),
        (
            with_graph("decoder", lambda graph: replace(graph, inputs=graph.inputs[1:])),
            "decoder.onnx declares no input input_ids",
        ),
        (
            with_graph("decoder", lambda graph: replace(graph, outputs=graph.outputs[:-1])),
            "decoder.onnx declares no output present.1.value",
        ),
        (
            lambda manifest: replace(manifest, vocabulary_size=5),
            r"decoder.onnx declares output logits as float32\['logits', 272\] instead of",
        ),
        (with_cache_dtype("bfloat16"), "the cache is bfloat16; on cpu it must be float32 or"),
        (with_cache_dtype("float16"), "output present.0.key as float32.* instead of float16"),
        (without_mover, "has graphs decoder; kind decoder needs decoder, mover"),
        (lambda manifest: replace(manifest, kind="diffusion"), "kind is 'diffusion'"),
        (
            lambda manifest: replace(manifest, config=manifest.config | {"decoder_layers": "2"}),
            "config.decoder_layers is '2'",
        ),
    ],
)
def test_another_interface_than_the_server_binds_is_refused(
    decoder: Path, change: Change, message: str
) -> None:
    reseal(decoder, change)
    with pytest.raises(ArtefactError, match=message) as caught:
        load_artefact(decoder)
    assert str(caught.value).startswith(str(decoder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("build", "limits", "name"),
    [
        (encoder_artefact, (5000, 0), "max_input"),
        (decoder_artefact, (20, 5000), "max_positions"),
        (two_vocabularies_artefact, (5000, 20), "max_input"),
    ],
)
def test_limits_beyond_the_tables_of_the_model_are_refused(
    tmp_path: Path, build: Callable[[], Path], limits: tuple[int, int], name: str
) -> None:
    directory = shutil.copytree(build(), tmp_path / "model")
    reseal(directory, with_limits(*limits))
    with pytest.raises(ArtefactError, match=rf"limits\.{name} is 5000; config\.max_positions is"):
        load_artefact(directory)


def test_distances_have_no_table_to_end(tmp_path: Path) -> None:
    directory = shutil.copytree(relative_artefact(), tmp_path / "relative")
    reseal(directory, with_limits(5000, 5000))
    assert load_artefact(directory).manifest.limits.max_input == 5000
