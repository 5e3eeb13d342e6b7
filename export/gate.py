"""The parity gate: an export that is not verified does not exist.

It runs in a process of its own, from nothing but the files: the artefact's and the checkpoint's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from export.artefact import Artefact
from export.decoder_checks import DecoderChecks
from export.decoder_expectations import DecoderExpectations, expect_of_decoder
from export.embedding_drift import embedding_drift
from export.encoder_checks import EncoderChecks, ExpectedBatch, expect_of_encoder
from export.generation_drift import generation_drift
from export.half_range import check_half_range
from export.held_weights import hold_weights
from export.manifest import REFERENCE_FILE, Manifest, open_files
from export.manifest_checks import check_manifest
from export.memory import give_back_memory
from export.own_process import ProcessEnded, run_apart
from export.parity import Check, ParityReport, Tolerance
from export.progress import Steps
from export.recipe import DriftBounds, recipe_of
from export.reference import (
    Arrays,
    compare_reference,
    decoder_reference,
    encoder_reference,
    write_reference,
)
from export.weight_checks import WeightChecks
from model.checkpoints import load_checkpoint
from model.config import Kind, Pooling, PoolingMode
from model.transformer import Transformer

Expectations = DecoderExpectations | tuple[ExpectedBatch, ...]  # of a decoder, of an encoder
NumberChecks = dict[str, Callable[[], Iterator[Check]]]  # by what is said while they run
Gate = Callable[["GateTask", Steps], ParityReport]  # `run_gate`, or `check_artefact`


class GateError(RuntimeError):
    """The gate could not do its work; nothing is known about the artefact."""


@dataclass(frozen=True)
class GateTask:
    """What to check.

    Attributes:
        directory: holds the graphs.
        checkpoint: the directory or .gguf file that they were made from.
        manifest: describes the graphs; a draft while building.
        tolerance: in the unit of the recipe's own.
        stores_reference: whether to write reference.npz; what is there is compared otherwise.
        accepts_drift: whether what has moved too far from fp32 passes, and is reported.
    """

    directory: Path
    checkpoint: Path
    manifest: Manifest
    tolerance: float
    stores_reference: bool
    accepts_drift: bool = False


def run_gate(task: GateTask, steps: Steps) -> ParityReport:
    """Runs the gate in a new process, which ends with this call, whatever ends it.

    Raises:
        GateError: the process failed or was killed.
    """
    try:
        return run_apart(check_artefact, task, steps)
    except ProcessEnded as error:
        raise GateError(f"the gate's process {error}") from None
    except Exception as error:  # whatever went wrong there
        raise GateError(f"{type(error).__name__}: {error}") from error


def check_artefact(task: GateTask, steps: Steps) -> ParityReport:
    """Both halves of the gate, in this process."""
    with _one_thread():
        return _check(task, steps)


def _check(task: GateTask, steps: Steps) -> ParityReport:
    checkpoint = load_checkpoint(task.checkpoint)
    steps.advance("comparing weights with the source")
    artefact = Artefact(task.manifest, open_files(task.directory, task.manifest))
    recipe = recipe_of(task.manifest)
    weights = WeightChecks(checkpoint, recipe.quantiser, recipe.dtype)
    checks = [*check_manifest(checkpoint, artefact), *weights.compare(artefact)]
    model = checkpoint.build()
    checkpoint.tensors.clear()  # the model has its own, and they are as large as the checkpoint
    give_back_memory()
    checks += _compare_with_fp32(task, artefact, model, steps)
    steps.expect(1)
    steps.advance("asking PyTorch")
    expected, reference = _expect(artefact, model), _reference(artefact, model)
    del model  # before the runtime copies its weights
    give_back_memory()
    tolerance = replace(recipe.tolerance, value=task.tolerance)
    checks += _compare_numbers(_number_checks(artefact, expected, tolerance), steps)
    if task.stores_reference:
        write_reference(task.directory / REFERENCE_FILE, reference)
    else:
        checks += compare_reference(artefact.files[REFERENCE_FILE], reference, tolerance)
    return ParityReport(
        tolerance=task.tolerance,
        checks=tuple(checks),
        traced=weights.traced,
        computed=weights.computed,
        unused=checkpoint.unused,
    )


def _compare_with_fp32(
    task: GateTask, artefact: Artefact, model: Transformer, steps: Steps
) -> Iterator[Check]:
    """What less than fp32 costs; the model then holds the weights that the graphs hold."""
    recipe = recipe_of(task.manifest)
    if recipe.dtype is torch.float16:
        steps.expect(1)
        steps.advance("looking for layers beyond fp16")
        yield from check_half_range(model, partial(_reference, artefact, model))
    if recipe.drift is not None:
        steps.expect(1)
        steps.advance("measuring how far the graph is from fp32")
        for check in _drift_checks(artefact, model, recipe.drift):
            yield check.accept() if task.accepts_drift else check
        hold_weights(model, artefact)


def _compare_numbers(numbers: NumberChecks, steps: Steps) -> Iterator[Check]:
    steps.expect(len(numbers))
    for label, run in numbers.items():
        steps.advance(f"comparing {label} with PyTorch")
        yield from run()


def pooling_of(manifest: Manifest) -> Pooling:
    """The pooling that an encoder's manifest states."""
    assert manifest.pooling is not None
    return Pooling(PoolingMode(manifest.pooling.mode), manifest.pooling.normalize)


def _drift_checks(artefact: Artefact, model: Transformer, bounds: DriftBounds) -> Iterator[Check]:
    manifest = artefact.manifest
    session = artefact.session(manifest.kind)
    if model.config.kind is Kind.ENCODER:
        embeddings = embedding_drift(
            model,
            pooling_of(manifest),
            session,
            artefact.tokenizer,
            manifest.limits.max_input,
        )
        return embeddings.checks(bounds.embeddings)
    assert bounds.generation is not None  # the recipe is for decoders
    generation = generation_drift(
        model,
        session,
        manifest.graphs["decoder"],
        artefact.tokenizer,
        manifest.limits.max_positions,
    )
    return generation.checks(bounds.generation)


def _expect(artefact: Artefact, model: Transformer) -> Expectations:
    limits = artefact.manifest.limits
    if model.config.kind is Kind.ENCODER:
        return expect_of_encoder(model, pooling_of(artefact.manifest), limits.max_input)
    return expect_of_decoder(model, artefact.tokenizer, limits.max_positions)


def _number_checks(
    artefact: Artefact, expected: Expectations, tolerance: Tolerance
) -> NumberChecks:
    graphs = artefact.manifest.graphs
    sessions = {role: artefact.session(role) for role in graphs}
    if not isinstance(expected, DecoderExpectations):
        encoder = EncoderChecks(expected, sessions["encoder"], tolerance)
        return {
            "embeddings": encoder.embeddings,
            "embeddings alone and batched": encoder.alone_and_batched,
        }
    decoder = DecoderChecks(
        expected, sessions["decoder"], sessions["mover"], graphs["decoder"], tolerance
    )
    return {
        "prefill": decoder.prefill,
        "chunked prefill": decoder.chunked_prefill,
        "batched decode": decoder.decode,
        "cached decode": decoder.cached_decode,
        "greedy tokens": decoder.greedy,
        "moved rows": decoder.move,
    }


def _reference(artefact: Artefact, model: Transformer) -> Arrays:
    """The content of reference.npz."""
    limits = artefact.manifest.limits
    if model.config.kind is Kind.ENCODER:
        return encoder_reference(model, pooling_of(artefact.manifest), limits.max_input)
    return decoder_reference(model, artefact.tokenizer, limits.max_positions)


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch's last bits then do not depend on how many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
