"""What was planted in an artefact is found, and by what: the list in docs/export.md.

Each fault is planted twice: with every digest rewritten, so that only the gate can see it, and with
the digests left as they were. That each tensor of each kind is missed when it is zeroed is tested
beside the gate.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from export.gate import check_artefact
from export.manifest import MANIFEST_FILE, DecodingRules, Manifest, ManifestError, load_manifest
from export.progress import SilentSteps
from export.reference import read_reference, write_reference
from export.source import resolve_source
from export.typed_json import canonical_json
from export.verify import open_verified, verify_against
from tests.artefacts import (
    decoder_artefact,
    encoder_artefact,
    encoder_decoder_artefact,
    graph_file,
    move_weights,
    read_weight,
    reseal,
    two_vocabularies_artefact,
    weight_names,
    write_weight,
)
from tests.checkpoints import (
    write_decoder,
    write_encoder,
    write_encoder_decoder,
    write_two_vocabularies,
)

_KINDS = {
    "encoder": (encoder_artefact, write_encoder),
    "decoder": (decoder_artefact, write_decoder),
    "encoder-decoder": (encoder_decoder_artefact, write_encoder_decoder),
    "two vocabularies": (two_vocabularies_artefact, write_two_vocabularies),
}


@dataclass(frozen=True)
class Fault:
    """Something wrong with an artefact.

    Attributes:
        found_by: the half of the gate, or the step before it, that finds it once the digests fit.
        plant: changes the files.
        edit: changes the manifest.
    """

    kind: str
    found_by: str
    plant: Callable[[Path], object] = lambda artefact: None
    edit: Callable[[Manifest], Manifest] = lambda manifest: manifest


def _scale(artefact: Path) -> None:
    name = "encoder.blocks.1.attention.value.weight"
    write_weight(artefact, name, read_weight(artefact, name) * np.float32(1.001))


def _add_nan(artefact: Path) -> None:
    name = "decoder.blocks.0.attention_residual.norm.weight"
    values = read_weight(artefact, name)
    values[5] = np.nan
    write_weight(artefact, name, values)


def _swap_tensors(artefact: Path) -> None:
    names = [f"decoder.blocks.{layer}.attention.query.weight" for layer in (0, 1)]
    first, second = (read_weight(artefact, name) for name in names)
    write_weight(artefact, names[0], second)
    write_weight(artefact, names[1], first)


def _flip_weight_bit(artefact: Path) -> None:
    """The lowest bit of one number: far below anything that shows in an output."""
    name = "encoder.embedding.tokens.weight"
    values = read_weight(artefact, name)
    values.view(np.uint32)[17, 3] ^= 1
    write_weight(artefact, name, values)


def _swap_weight_files(artefact: Path) -> None:
    """A file of the same size, with other numbers in it."""
    generator = np.random.default_rng(0)
    for name in weight_names(artefact):
        values = read_weight(artefact, name)
        write_weight(artefact, name, generator.permutation(values.ravel()).reshape(values.shape))


def _swap_graph_files(artefact: Path) -> None:
    shutil.copy(artefact / "mover.onnx", artefact / "decoder.onnx")


def _swap_tokenizer(artefact: Path) -> None:
    shutil.copy(encoder_artefact() / "tokenizer.json", artefact)


def _swap_source_keys(artefact: Path) -> None:
    """Each layer's target would read the keys of the other's source."""
    names = [f"decoder.blocks.{layer}.cross_attention.key.weight" for layer in (0, 1)]
    first, second = (read_weight(artefact, name, "encoder") for name in names)
    write_weight(artefact, names[0], second, "encoder")
    write_weight(artefact, names[1], first, "encoder")


def _swap_tokenizers(artefact: Path) -> None:
    shutil.copy(artefact / "tokenizer.json", artefact / "target_tokenizer.json")


def _swap_stacks(artefact: Path) -> None:
    shutil.copy(artefact / "encoder.onnx", artefact / "decoder.onnx")


def _edit_graph(artefact: Path, edit: Callable[[onnx.GraphProto], None], role: str = "*") -> None:
    path = graph_file(artefact, role)
    model = onnx.load(path, load_external_data=False)
    edit(model.graph)
    onnx.save(model, path)


def _freeze_axis(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2


def _change_epsilon(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "epsilon":
                attribute.f = 0.1


def _exchange_key_and_value(graph: onnx.GraphProto) -> None:
    node = next(node for node in graph.node if node.op_type == "GroupQueryAttention")
    node.input[1], node.input[2] = node.input[2], node.input[1]


def _stop_rotating(graph: onnx.GraphProto) -> None:
    node = next(node for node in graph.node if node.op_type == "GroupQueryAttention")
    attribute = next(each for each in node.attribute if each.name == "do_rotary")
    attribute.i = 0
    del node.input[7:]


def _exchange_sources(graph: onnx.GraphProto) -> None:
    """An encoder that gives the keys of two layers in each other's place."""
    names = {"cross.0.key": "cross.1.key", "cross.1.key": "cross.0.key"}
    for node in graph.node:
        for index, name in enumerate(node.output):
            node.output[index] = names.get(name, name)


def _read_other_source(graph: onnx.GraphProto) -> None:
    """A decoder whose layers read the values of each other's source."""
    names = {"cross.0.value": "cross.1.value", "cross.1.value": "cross.0.value"}
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)


def _write_to_sources(graph: onnx.GraphProto) -> None:
    """A decoder that puts the value of a source's last token where its key is."""
    node = next(node for node in graph.node if any("cross." in name for name in node.input[3:4]))
    node.input[1], node.input[2] = node.input[2], node.input[1]


def _heed_company(graph: onnx.GraphProto) -> None:
    """An encoder whose keys depend a little on how long the other sources of a batch are."""
    for node in graph.node:
        for index, name in enumerate(node.output):
            if name == "cross.0.key":
                node.output[index] = "own.key"
    little = onnx.numpy_helper.from_array(np.array([1e-7], dtype=np.float32), "little")
    graph.initializer.append(little)
    for operator, inputs, output, attributes in (
        ("Cast", ["lengths"], "company.lengths", {"to": onnx.TensorProto.FLOAT}),
        ("ReduceMax", ["company.lengths"], "company.longest", {"keepdims": 1}),
        ("Mul", ["company.longest", "little"], "company.shift", {}),
        ("Add", ["own.key", "company.shift"], "cross.0.key", {}),
    ):
        graph.node.append(onnx.helper.make_node(operator, inputs, [output], **attributes))


def _scatter_elsewhere(artefact: Path) -> None:
    """The mover writes heads where it should write positions."""
    model = onnx.load(artefact / "mover.onnx")
    for node in model.graph.node:
        for attribute in node.attribute:
            attribute.i = 1
    onnx.save(model, artefact / "mover.onnx")


def _flip_tokenizer_bit(artefact: Path) -> None:
    """One letter of one token."""
    path = artefact / "tokenizer.json"
    path.write_bytes(path.read_bytes().replace(b"<pad>", b"<pat>"))


def _flip_reference_bit(artefact: Path) -> None:
    path = artefact / "reference.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _change_reference(artefact: Path) -> None:
    path = artefact / "reference.npz"
    arrays = read_reference(path.read_bytes())
    name = next(name for name in arrays if name.endswith(("logits", "embeddings")))
    write_reference(path, arrays | {name: arrays[name] + 0.01})


def _change_report(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def plant(artefact: Path) -> None:
        path = artefact / "parity.json"
        report = json.loads(path.read_bytes())
        change(report)
        path.write_bytes(canonical_json(report))

    return plant


def _frozen_manifest(manifest: Manifest) -> Manifest:
    graph = manifest.graphs["decoder"]
    first = replace(graph.inputs[0], shape=(2, *graph.inputs[0].shape[1:]))
    graph = replace(graph, inputs=(first, *graph.inputs[1:]))
    return replace(manifest, graphs=manifest.graphs | {"decoder": graph})


def _pooled(**change: object) -> Callable[[Manifest], Manifest]:
    def edit(manifest: Manifest) -> Manifest:
        assert manifest.pooling is not None
        return replace(manifest, pooling=replace(manifest.pooling, **change))  # type: ignore[arg-type]

    return edit


def _other_end(manifest: Manifest) -> Manifest:
    return replace(manifest, special_ids=replace(manifest.special_ids, eos=(5,)))


def _other_start(manifest: Manifest) -> Manifest:
    return replace(manifest, special_ids=replace(manifest.special_ids, decoder_start=5))


def _no_rules(manifest: Manifest) -> Manifest:
    return replace(manifest, decoding=DecodingRules())


def _longer_limit(manifest: Manifest) -> Manifest:
    return replace(manifest, limits=replace(manifest.limits, max_positions=4096))


FAULTS = {
    "a weight scaled by 1.001": Fault("encoder", "weights", _scale),
    "one bit of a weight flipped": Fault("encoder", "weights", _flip_weight_bit),
    "a NaN in a gain": Fault("decoder", "weights", _add_nan),
    "two tensors of equal shape swapped": Fault("decoder", "weights", _swap_tensors),
    "another weights file of the same size": Fault("decoder", "weights", _swap_weight_files),
    "another graph in the graph's place": Fault("decoder", "structure", _swap_graph_files),
    "the tokenizer of another model": Fault("decoder", "content", _swap_tokenizer),
    "a frozen axis": Fault(
        "decoder", "structure", lambda artefact: _edit_graph(artefact, _freeze_axis)
    ),
    "a frozen axis that the manifest declares": Fault(
        "decoder",
        "runtime",
        lambda artefact: _edit_graph(artefact, _freeze_axis),
        _frozen_manifest,
    ),
    "another epsilon in the norms": Fault(
        "encoder", "embeddings", lambda artefact: _edit_graph(artefact, _change_epsilon)
    ),
    "keys and values exchanged in one layer": Fault(
        "decoder", "prefill", lambda artefact: _edit_graph(artefact, _exchange_key_and_value)
    ),
    "one layer that does not rotate": Fault(
        "decoder", "prefill", lambda artefact: _edit_graph(artefact, _stop_rotating)
    ),
    "weights outside the artefact": Fault(
        "decoder", "structure", lambda artefact: move_weights(artefact, "../decoder.data")
    ),
    "a mover that writes along another axis": Fault("decoder", "runtime", _scatter_elsewhere),
    "one letter of the tokenizer": Fault("decoder", "content", _flip_tokenizer_bit),
    "one bit of the stored reference flipped": Fault("encoder", "structure", _flip_reference_bit),
    "another output in the stored reference": Fault(
        "encoder", "stored reference", _change_reference
    ),
    "another logit in the stored reference": Fault(
        "decoder", "stored reference", _change_reference
    ),
    "a check taken out of the stored report": Fault(
        "encoder", "stored report", _change_report(lambda report: report["checks"].pop())
    ),
    "a worse difference in the stored report": Fault(
        "decoder",
        "stored report",
        _change_report(lambda report: report["checks"][-1].update(difference=0.5)),
    ),
    "another source of a tensor in the stored report": Fault(
        "encoder",
        "stored report",
        _change_report(
            lambda report: report["traced"]["encoder.onnx"].update(
                {"encoder.embedding.norm.bias": ["another"]}
            )
        ),
    ),
    "another pooling in the manifest": Fault("encoder", "embeddings", edit=_pooled(mode="cls")),
    "no unit length in the manifest": Fault("encoder", "embeddings", edit=_pooled(normalize=False)),
    "another width in the manifest": Fault("encoder", "content", edit=_pooled(dimensions=32)),
    "another end id in the manifest": Fault("decoder", "content", edit=_other_end),
    "a limit beyond the model's": Fault("decoder", "structure", edit=_longer_limit),
    "the source's keys of two layers swapped": Fault(
        "encoder-decoder", "weights", _swap_source_keys
    ),
    "the encoder's graph in the decoder's place": Fault(
        "encoder-decoder", "structure", _swap_stacks
    ),
    "the keys of two layers given in each other's place": Fault(
        "encoder-decoder",
        "memory",
        lambda artefact: _edit_graph(artefact, _exchange_sources, "encoder"),
    ),
    "layers that read each other's source": Fault(
        "encoder-decoder",
        "cached decode",
        lambda artefact: _edit_graph(artefact, _read_other_source, "decoder"),
    ),
    "a decoder that writes to its sources": Fault(
        "encoder-decoder",
        "sources in their slots",
        lambda artefact: _edit_graph(artefact, _write_to_sources, "decoder"),
    ),
    "a source that depends on those beside it": Fault(
        "encoder-decoder",
        "memory alone and batched",
        lambda artefact: _edit_graph(artefact, _heed_company, "encoder"),
    ),
    "another output in the stored reference of sources": Fault(
        "encoder-decoder", "stored reference", _change_reference
    ),
    "a mover of sources that writes along another axis": Fault(
        "encoder-decoder", "runtime", _scatter_elsewhere
    ),
    "another start of targets in the manifest": Fault(
        "encoder-decoder", "content", edit=_other_start
    ),
    "no rules of decoding in the manifest": Fault("two vocabularies", "content", edit=_no_rules),
    "the source's tokenizer for targets": Fault("two vocabularies", "content", _swap_tokenizers),
}


def _plant(fault: Fault, directory: Path) -> tuple[Path, Path]:
    """A checkpoint, and the artefact that was made from it and then spoiled."""
    built, write = _KINDS[fault.kind]
    artefact = directory / "artefact"
    shutil.copytree(built(), artefact)
    fault.plant(artefact)
    return write(directory / "checkpoint"), artefact


def _finders(checkpoint: Path, artefact: Path) -> set[str]:
    """What finds something, in the order of `verify --source`: what comes first ends it."""
    steps = SilentSteps()
    try:
        opened = open_verified(artefact, steps)
        source = resolve_source(str(checkpoint))
        report = verify_against(source, artefact, opened, 1e-4, steps, check_artefact)
    except ManifestError:
        return {"structure"}
    except RuntimeError:  # of ONNX Runtime, which has other dimensions in its graph
        return {"runtime"}
    return {check.name for check in report.failures}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_found_though_the_digests_fit(fault: Fault, tmp_path: Path) -> None:
    checkpoint, artefact = _plant(fault, tmp_path)
    reseal(artefact, fault.edit)
    assert fault.found_by in _finders(checkpoint, artefact)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_does_not_fit_the_digests(fault: Fault, tmp_path: Path) -> None:
    _, artefact = _plant(fault, tmp_path)
    manifest = fault.edit(load_manifest(artefact))
    (artefact / MANIFEST_FILE).write_bytes(manifest.to_bytes())
    with pytest.raises(ManifestError, match=r"does not match its|bytes instead of"):
        open_verified(artefact, SilentSteps())


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full)])
def test_no_flipped_bit_is_believed(seed: int, tmp_path: Path) -> None:
    """BAD-01: in any file, but in the time that it was built at."""
    artefact = tmp_path / "artefact"
    shutil.copytree(decoder_artefact(), artefact)
    generator = random.Random(seed)
    flips = 200 if seed else 40
    paths = sorted(artefact.iterdir())
    for flip in range(flips):
        path = paths[flip % len(paths)]
        good = path.read_bytes()
        content = bytearray(good)
        content[_place(generator, good)] ^= 1 << generator.randrange(8)
        path.write_bytes(content)
        with pytest.raises(ManifestError):
            open_verified(artefact, SilentSteps())
        path.write_bytes(good)
    open_verified(artefact, SilentSteps())


def _place(generator: random.Random, content: bytes) -> int:
    field = b'"built_at":"'
    start = content.find(field)
    end = content.find(b'"', start + len(field))
    while True:
        place = generator.randrange(len(content))
        if start < 0 or not start + len(field) <= place < end:
            return place
