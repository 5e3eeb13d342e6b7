"""Manifests without files, for tests that need what an artefact says and no artefact."""

from __future__ import annotations

from dataclasses import replace

from export.manifest import (
    Device,
    FileSpec,
    GraphSpec,
    Limits,
    Manifest,
    ParitySummary,
    PoolingSpec,
    Precision,
    SourceSpec,
    SpecialIds,
    Task,
)


def encoder_manifest(
    name: str = "encoder", *, max_input: int = 8, dimensions: int = 4, normalize: bool = True
) -> Manifest:
    """An encoder that embeds."""
    return _manifest(
        name,
        "encoder",
        (Task.EMBED,),
        Limits(max_input=max_input, max_positions=0),
        PoolingSpec("mean", normalize, dimensions),
        vocabulary_size=100,
    )


def decoder_manifest(
    name: str = "decoder", *, max_positions: int = 1000, vocabulary_size: int = 100
) -> Manifest:
    """A decoder that generates."""
    limits = Limits(max_input=max_positions, max_positions=max_positions)
    return _manifest(name, "decoder", (Task.GENERATE,), limits, None, vocabulary_size)


def encoder_decoder_manifest(
    name: str = "both", *, max_input: int = 1000, max_positions: int = 1000, sources: int = 100
) -> Manifest:
    """An encoder-decoder, which embeds and generates; it reads `sources` ids and writes 100."""
    manifest = _manifest(
        name,
        "encoder_decoder",
        (Task.EMBED, Task.GENERATE),
        Limits(max_input=max_input, max_positions=max_positions),
        PoolingSpec("mean", normalize=False, dimensions=4),
        vocabulary_size=100,
    )
    return replace(
        manifest, config={"vocab_size": sources}, special_ids=SpecialIds(eos=(1,), decoder_start=0)
    ).sealed()


def _manifest(
    name: str,
    kind: str,
    task: tuple[Task, ...],
    limits: Limits,
    pooling: PoolingSpec | None,
    vocabulary_size: int,
) -> Manifest:
    return Manifest(
        name=name,
        kind=kind,
        task=task,
        config={},
        vocabulary_size=vocabulary_size,
        graphs={"graph": GraphSpec("graph.onnx", (), (), ())},
        limits=limits,
        precision=Precision.FP32,
        device=Device.CPU,
        opset=24,
        tools={},
        source=SourceSpec("directory", name, None, {}),
        verified_on=(Device.CPU,),
        parity=ParitySummary(checks=1, worst_difference=0.0, tolerance=1e-4),
        files={"graph.onnx": FileSpec(size=1, sha256="00")},
        pooling=pooling,
    ).sealed()
