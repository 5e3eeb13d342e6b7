"""The parity gate: an export that is not verified does not exist.

It runs in a process of its own, from nothing but the files: the artefact's and the checkpoint's.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import onnxruntime as ort
import torch

from export.artefact import Artefact
from export.decoder_checks import DecoderChecks
from export.embedding_drift import embedding_drift
from export.encoder_checks import EncoderChecks
from export.generation_drift import generation_drift
from export.held_weights import hold_weights
from export.manifest import REFERENCE_FILE, Manifest, open_files
from export.manifest_checks import check_manifest
from export.memory import give_back_memory
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

Sessions = dict[str, ort.InferenceSession]  # by the role of the graph
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
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_and_send, args=(task, sender), daemon=True)
    process.start()
    sender.close()  # the process holds the other end alone, so that its death is seen here
    try:
        return _receive(receiver, steps)
    except EOFError:
        process.join()
        raise GateError(f"the gate's process ended with exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()


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
    sessions = {role: artefact.session(role) for role in task.manifest.graphs}
    if recipe.drift is not None:
        steps.expect(1)
        steps.advance("measuring how far the graph is from fp32")
        drift = _drift_checks(artefact, sessions, model, recipe.drift)
        checks += [check.accept() if task.accepts_drift else check for check in drift]
        hold_weights(model, recipe)
    tolerance = replace(recipe.tolerance, value=task.tolerance)
    numbers = _number_checks(artefact, sessions, model, tolerance)
    steps.expect(len(numbers))
    for label, run in numbers.items():
        steps.advance(f"comparing {label} with PyTorch")
        checks += run()
    reference = _reference(artefact, model)
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


def pooling_of(manifest: Manifest) -> Pooling:
    """The pooling that an encoder's manifest states."""
    assert manifest.pooling is not None
    return Pooling(PoolingMode(manifest.pooling.mode), manifest.pooling.normalize)


def _drift_checks(
    artefact: Artefact, sessions: Sessions, model: Transformer, bounds: DriftBounds
) -> Iterator[Check]:
    manifest = artefact.manifest
    if model.config.kind is Kind.ENCODER:
        embeddings = embedding_drift(
            model,
            pooling_of(manifest),
            sessions["encoder"],
            artefact.tokenizer,
            manifest.limits.max_input,
        )
        return embeddings.checks(bounds.embeddings)
    generation = generation_drift(
        model,
        sessions["decoder"],
        manifest.graphs["decoder"],
        artefact.tokenizer,
        manifest.limits.max_positions,
    )
    return generation.checks(bounds.generation)


def _number_checks(
    artefact: Artefact, sessions: Sessions, model: Transformer, tolerance: Tolerance
) -> NumberChecks:
    manifest = artefact.manifest
    if model.config.kind is Kind.ENCODER:
        encoder = EncoderChecks(
            model,
            pooling_of(manifest),
            sessions["encoder"],
            manifest.limits.max_input,
            tolerance,
        )
        return {
            "embeddings": encoder.embeddings,
            "embeddings alone and batched": encoder.alone_and_batched,
        }
    decoder = DecoderChecks(
        model,
        sessions["decoder"],
        sessions["mover"],
        manifest.graphs["decoder"],
        artefact.tokenizer,
        manifest.limits.max_positions,
        tolerance,
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


class _SentSteps:
    """Tells the parent process."""

    def __init__(self, sender: Connection) -> None:
        self._sender = sender

    def expect(self, steps: int) -> None:
        self._sender.send(steps)

    def advance(self, label: str) -> None:
        self._sender.send(label)


def _run_and_send(task: GateTask, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this
    try:
        sender.send(check_artefact(task, _SentSteps(sender)))
    except Exception as error:
        sender.send(GateError(f"{type(error).__name__}: {error}"))


def _receive(receiver: Connection, steps: Steps) -> ParityReport:
    while True:
        match receiver.recv():
            case ParityReport() as report:
                return report
            case GateError() as error:
                raise error
            case int(more):
                steps.expect(more)
            case str(label):
                steps.advance(label)
