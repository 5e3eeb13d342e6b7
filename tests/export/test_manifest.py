"""The manifest: one spelling, one digest, and nothing else is believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export.manifest import (
    MANIFEST_FILE,
    Device,
    FileSpec,
    GraphSpec,
    Limits,
    Manifest,
    ManifestError,
    ParitySummary,
    Precision,
    SourceSpec,
    SpecialIds,
    Task,
    TensorSpec,
    load_manifest,
)
from export.typed_json import canonical_json

MANIFEST = Manifest(
    name="sample",
    kind="decoder",
    task=(Task.GENERATE,),
    config={"kind": "decoder", "d_model": 8},
    vocabulary_size=16,
    graphs={
        "decoder": GraphSpec(
            file="decoder.onnx",
            weights=("decoder.data",),
            inputs=(TensorSpec("input_ids", "int64", ("batch", "sequence")),),
            outputs=(TensorSpec("logits", "float32", ("logits", 16)),),
        )
    },
    limits=Limits(max_input=8, max_positions=8),
    precision=Precision.FP32,
    device=Device.CPU,
    opset=24,
    tools={"torch": "2"},
    source=SourceSpec(kind="directory", id="sample", revision=None, files={"a": "00"}),
    verified_on=(Device.CPU,),
    parity=ParitySummary(checks=3, worst_difference=1e-6, tolerance=1e-4),
    files={"decoder.onnx": FileSpec(1, "00"), "decoder.data": FileSpec(2, "11")},
    special_ids=SpecialIds(pad=0, eos=(1, 2)),
    chat_template="{{ 'Grüße' }}",
    built_at="2026-01-01T00:00:00+00:00",
).sealed()


def test_reads_back_what_it_wrote() -> None:
    assert Manifest.from_bytes(MANIFEST.to_bytes()) == MANIFEST


def test_the_file_is_canonical_json() -> None:
    content = MANIFEST.to_bytes()
    assert content == canonical_json(json.loads(content))
    assert "Grüße".encode() in content
    assert b": " not in content


def test_the_digest_ignores_when_it_was_built_and_nothing_else() -> None:
    assert replace(MANIFEST, built_at="later").compute_digest() == MANIFEST.digest
    assert replace(MANIFEST, name="other").compute_digest() != MANIFEST.digest


@pytest.mark.parametrize(
    "respell",
    [
        lambda values: json.dumps(values, sort_keys=True).encode(),
        lambda values: json.dumps(values, sort_keys=True, separators=(",", ":")).encode(),
        lambda values: canonical_json(values) + b"\n",
        lambda values: json.dumps(
            dict(sorted(values.items(), reverse=True)), ensure_ascii=False, separators=(",", ":")
        ).encode(),
    ],
    ids=["spaces", "escapes", "newline", "order"],
)
def test_refuses_any_other_spelling(respell: Callable[[Any], bytes]) -> None:
    with pytest.raises(ManifestError, match="canonical"):
        Manifest.from_bytes(respell(json.loads(MANIFEST.to_bytes())))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "format version None"),
        (canonical_json({"format_version": 1}), "format version 1"),
        (canonical_json({"format_version": 2}), "lacks"),
        (canonical_json({"format_version": 2, "nonsense": 1}), "unknown fields: nonsense"),
    ],
)
def test_refuses_what_is_no_manifest(content: bytes, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        Manifest.from_bytes(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Big"}, "name is 'Big'"),
        ({"name": "a" * 65}, "at most 64"),
        ({"name": ""}, "name is ''"),
        ({"vocabulary_size": "16"}, r"vocabulary_size is '16'; it must be of type int"),
        ({"vocabulary_size": True}, "must be of type int"),
        ({"precision": "fp64"}, "must be one of fp32, fp16"),
        ({"task": ["sing"]}, r"task\[0\] is 'sing'"),
        ({"files": {"../x": {"size": 1, "sha256": "0"}}}, "not a plain name"),
        ({"files": {}}, "not listed: decoder.data, decoder.onnx"),
        ({"limits": {"max_input": 1}}, "limits lacks max_positions"),
        ({"special_ids": None}, "special_ids is None"),
    ],
)
def test_names_the_field_that_is_wrong(change: dict[str, Any], message: str) -> None:
    values = json.loads(MANIFEST.to_bytes()) | change
    with pytest.raises(ManifestError, match=message):
        Manifest.from_bytes(canonical_json(values))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_single_change_of_content_is_believed(data: st.DataObject) -> None:
    values = json.loads(MANIFEST.to_bytes())
    places = [place for place in _places(values) if place != ("built_at",)]
    *path, last = data.draw(st.sampled_from(places))
    parent = values
    for key in path:
        parent = parent[key]
    old = parent[last]
    parent[last] = data.draw(
        st.one_of(
            st.integers(), st.text(), st.none(), st.booleans(), st.just([]), st.just({})
        ).filter(lambda new: new != old or type(new) is not type(old))
    )
    with pytest.raises(ManifestError):
        Manifest.from_bytes(canonical_json(values))


@settings(max_examples=60, deadline=None)
@given(index=st.integers(0, len(MANIFEST.to_bytes()) - 1), byte=st.integers(0, 255))
def test_no_flipped_byte_is_believed(index: int, byte: int) -> None:
    content = bytearray(MANIFEST.to_bytes())
    start = content.index(b'"built_at":"') + len(b'"built_at":"')
    if content[index] == byte or start <= index < start + len(MANIFEST.built_at):
        return
    content[index] = byte
    with pytest.raises(ManifestError):
        Manifest.from_bytes(bytes(content))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"cannot read manifest\.json: No such file"):
        load_manifest(tmp_path)
    (tmp_path / MANIFEST_FILE).write_bytes(MANIFEST.to_bytes())
    assert load_manifest(tmp_path) == MANIFEST


def _places(values: Any) -> Iterator[tuple[Any, ...]]:
    items: Any = ()
    if isinstance(values, dict):
        items = values.items()
    elif isinstance(values, list):
        items = enumerate(values)
    for key, value in items:
        yield (key,)
        yield from ((key, *rest) for rest in _places(value))
