"""build: from a checkpoint to a verified artefact, which appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from export.artefact_files import describe_file
from export.decoder_graph import decoder_graph
from export.draft import draft_manifest, read_decoding_rules
from export.encoder_graph import encoder_graph
from export.gate import Gate, GateTask, run_gate
from export.graph import ExportError, write_graph
from export.manifest import (
    MANIFEST_FILE,
    NAME_PATTERN,
    PARITY_FILE,
    TARGET_TOKENIZER_FILE,
    TOKENIZER_FILE,
    Device,
    FileSpec,
    GraphSpec,
    Manifest,
    Precision,
)
from export.memory import give_back_memory
from export.mover_graph import write_mover_graph
from export.own_process import ProcessEnded, run_apart
from export.parity import ParityReport
from export.progress import Steps
from export.recipe import Recipe, find_recipe
from export.source import Source
from export.target_decoder_graph import target_decoder_graph
from export.typed_json import canonical_json
from model.checkpoint import Checkpoint
from model.checkpoints import load_checkpoint
from model.config import Kind, Pooling, PoolingMode, Positions


class BuildError(ValueError):
    """What was asked for cannot be built; the message names the option or the path."""


class ParityFailure(RuntimeError):
    """The graphs do not compute what the checkpoint does; nothing was left at the output path."""

    def __init__(self, report: ParityReport) -> None:
        super().__init__(f"{len(report.failures)} of {len(report.checks)} checks failed")
        self.report = report


@dataclass(frozen=True)
class BuildOptions:
    """What to build.

    Raises:
        BuildError: an option cannot be followed.
        RecipeError: the device does not have the precision.

    Attributes:
        output: the artefact's directory; it must not exist unless `force`.
        pooling: instead of the checkpoint's; None to keep it.
        max_length: tokens of a text, or positions of a cache slot; None for the model's own.
        tolerance: the largest difference from eager PyTorch that passes; None for the recipe's.
        accept_drift: publish what has moved further from fp32 than the precision should.
        standard_ops: whether every operator is to be one of the ONNX standard.
    """

    output: Path
    name: str
    device: Device = Device.CPU
    precision: Precision = Precision.FP32
    pooling: PoolingMode | None = None
    max_length: int | None = None
    tolerance: float | None = None
    accept_drift: bool = False
    standard_ops: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise BuildError(
                f"--name {self.name}; it must start with a letter or digit and hold at most 64 of "
                "a-z 0-9 . _ -"
            )
        if self.standard_ops and (self.device, self.precision) != (Device.CPU, Precision.FP32):
            raise BuildError(
                f"--standard-ops with --device {self.device} --precision {self.precision}; the "
                "operators of those are not in the ONNX standard: it is for cpu and fp32"
            )
        find_recipe(self.device, self.precision)
        if self.output.exists() and not self.force:
            raise BuildError(f"{self.output} exists; --force replaces it")
        if self.output.exists() and not (self.output / MANIFEST_FILE).is_file():
            raise BuildError(f"{self.output} exists and is not an artefact; it is left alone")
        if not self.output.parent.is_dir():
            raise BuildError(f"{self.output.parent}, which is to hold the artefact, does not exist")

    @property
    def recipe(self) -> Recipe:
        """What the precision is on the device."""
        return find_recipe(self.device, self.precision)


def build(
    source: Source,
    options: BuildOptions,
    steps: Steps,
    gate: Gate = run_gate,
    *,
    writes_apart: bool = False,
) -> Manifest:
    """Builds, verifies and only then publishes an artefact.

    Args:
        gate: `check_artefact` spares a process of its own where that is not wanted.
        writes_apart: whether the graphs are written in a process of their own, which gives back
            all the memory that tracing takes before the gate needs it.

    Raises:
        BuildError: the options do not fit the checkpoint.
        RecipeError: the precision is not for the checkpoint's kind.
        CheckpointError: the checkpoint cannot be used.
        ExportError: a graph cannot be written.
        GateError: the gate could not do its work.
        ParityFailure: a check failed.
    """
    steps.expect(3)
    with _staging(options.output) as directory:
        draft = _Draft(source, options, directory)
        manifest = _write_apart(draft, steps) if writes_apart else _write(draft, steps)
        give_back_memory()  # the gate needs it
        report = gate(
            GateTask(
                directory,
                source.path,
                manifest,
                options.tolerance or options.recipe.tolerance.value,
                stores_reference=True,
                accepts_drift=options.accept_drift,
            ),
            steps,
        )
        if report.failures:
            raise ParityFailure(report)
        manifest = _seal(directory, manifest, report)
        _publish(directory, options.output)
    return manifest


def apply_options(checkpoint: Checkpoint, options: BuildOptions) -> Checkpoint:
    """The checkpoint with what the options change.

    Raises:
        BuildError: an option does not fit the kind of the model, or one is needed.
        CheckpointError: its generation settings ask for what formerd does not do.
        RecipeError: the precision is not for the kind of the model.
    """
    config = checkpoint.config
    read_decoding_rules(checkpoint)  # before anything is traced
    options.recipe.check_kind(config.kind)
    if options.max_length is not None and not 0 < options.max_length <= config.max_positions:
        raise BuildError(
            f"--max-length {options.max_length}; the model takes 1 to {config.max_positions} tokens"
        )
    if config.positions is Positions.RELATIVE and options.device is Device.CUDA:
        raise BuildError(
            f"positions {config.positions} with --device {options.device}: no GPU has verified "
            "attention with a bias of distances; build it for cpu"
        )
    if config.kind is Kind.DECODER:
        if options.pooling is not None:
            raise BuildError(f"--pooling {options.pooling} is for encoders; this is a decoder")
        return checkpoint
    pooling = checkpoint.pooling
    if pooling is None and config.kind is Kind.ENCODER_DECODER:
        pooling = Pooling(PoolingMode.MEAN, normalize=False)  # which nobody trained it for
    if options.pooling is not None:
        pooling = Pooling(options.pooling, normalize=pooling is not None and pooling.normalize)
    if pooling is None:
        modes = ", ".join(PoolingMode)
        raise BuildError(f"the checkpoint does not say how to pool; add --pooling: {modes}")
    if pooling.mode is PoolingMode.MAX and options.device is Device.CUDA:
        raise BuildError(
            f"pooling {pooling.mode} with --device {options.device}: the operator needs cuDNN, "
            "which the server keeps out; build it for cpu"
        )
    return replace(checkpoint, pooling=pooling)


@dataclass(frozen=True)
class _Draft:
    """What is to be written, and into which directory."""

    source: Source
    options: BuildOptions
    directory: Path


def _write_apart(draft: _Draft, steps: Steps) -> Manifest:
    try:
        return run_apart(_write, draft, steps)
    except ProcessEnded as error:
        raise ExportError(f"the process that writes the graphs {error}") from None


def _write(draft: _Draft, steps: Steps) -> Manifest:
    """Writes everything that comes from the checkpoint; the draft of the manifest."""
    options, directory = draft.options, draft.directory
    steps.advance("reading the checkpoint")
    checkpoint = apply_options(load_checkpoint(draft.source.path), options)
    steps.advance("tracing the graphs")
    (directory / TOKENIZER_FILE).write_bytes(checkpoint.tokenizer_json)
    if checkpoint.target_tokenizer_json is not None:
        (directory / TARGET_TOKENIZER_FILE).write_bytes(checkpoint.target_tokenizer_json)
    graphs = _write_graphs(checkpoint, options, directory)
    return draft_manifest(
        checkpoint,
        name=options.name,
        recipe=options.recipe,
        source=draft.source.describe(),
        graphs=graphs,
        files=_describe_files(directory),
        max_length=options.max_length,
    )


def _write_graphs(
    checkpoint: Checkpoint, options: BuildOptions, directory: Path
) -> dict[str, GraphSpec]:
    recipe = options.recipe
    model = checkpoint.build().to(recipe.dtype)
    checkpoint.tensors.clear()  # the model has its own, and they are as large as the checkpoint
    config, graphs = checkpoint.config, {}
    if config.has_encoder:
        assert checkpoint.pooling is not None
        encoder = encoder_graph(model, checkpoint.pooling, recipe.dtype)
        graphs["encoder"] = write_graph(encoder, directory, recipe.quantiser)
    if config.has_decoder:
        source = target_decoder_graph if config.has_encoder else decoder_graph
        decoder = source(model, recipe.dtype, standard_ops=options.standard_ops)
        graphs["decoder"] = write_graph(decoder, directory, recipe.quantiser)
        graphs["mover"] = write_mover_graph(config, recipe.number, directory)
    return graphs


def _seal(directory: Path, draft: Manifest, report: ParityReport) -> Manifest:
    """Adds what the gate found and writes the manifest."""
    (directory / PARITY_FILE).write_bytes(canonical_json(report.to_json()))
    manifest = replace(
        draft,
        files=_describe_files(directory),
        parity=report.summary(),
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
    ).sealed()
    (directory / MANIFEST_FILE).write_bytes(manifest.to_bytes())
    return manifest


def _describe_files(directory: Path) -> dict[str, FileSpec]:
    return {path.name: describe_file(path) for path in sorted(directory.iterdir())}


@contextmanager
def _staging(output: Path) -> Iterator[Path]:
    """A directory beside the output, so that it can be renamed to it; gone at the end."""
    directory = output.with_name(f".{output.name}.{os.getpid()}.partial")
    directory.mkdir()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _publish(directory: Path, output: Path) -> None:
    """Makes the directory durable and renames it to the output; what was there goes after."""
    for path in (*directory.iterdir(), directory):
        _sync(path)
    replaced = directory.with_suffix(".replaced")
    if output.exists():
        output.rename(replaced)
    directory.rename(output)
    _sync(output.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
