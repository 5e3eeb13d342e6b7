"""The parity gate: an export that is not verified does not exist.

It runs in a process of its own, from nothing but the files: the artefact's and the checkpoint's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch

from export.artefact import Artefact
from export.artefact_files import open_files
from export.gate_task import GateTask
from export.half_range import check_half_range
from export.held_weights import hold_weights
from export.manifest import REFERENCE_FILE
from export.manifest_checks import check_manifest
from export.memory import give_back_memory
from export.numbers import NumberChecks, Numbers, numbers_of
from export.parity import Check, ParityReport
from export.progress import Steps
from export.recipe import recipe_of
from export.reference import compare_reference, write_reference
from export.weight_checks import WeightChecks
from model.checkpoints import load_checkpoint
from model.transformer import Transformer


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
    numbers = numbers_of(artefact)
    checks += _compare_with_fp32(task, artefact, numbers, model, steps)
    steps.expect(1)
    steps.advance("asking PyTorch")
    compare, reference = numbers.expect(model), numbers.reference(model)
    del model  # before the runtime copies its weights
    give_back_memory()
    tolerance = replace(recipe.tolerance, value=task.tolerance)
    checks += _compare_numbers(compare(tolerance), steps)
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
    task: GateTask, artefact: Artefact, numbers: Numbers, model: Transformer, steps: Steps
) -> Iterator[Check]:
    """What less than fp32 costs; the model then holds the weights that the graphs hold."""
    recipe = recipe_of(task.manifest)
    if recipe.dtype is torch.float16:
        steps.expect(1)
        steps.advance("looking for layers beyond fp16")
        yield from check_half_range(model, partial(numbers.reference, model))
    if recipe.drift is not None:
        steps.expect(1)
        steps.advance("measuring how far the graph is from fp32")
        for check in numbers.drift(model, recipe.drift):
            yield check.accept() if task.accepts_drift else check
        hold_weights(model, artefact)


def _compare_numbers(checks: NumberChecks, steps: Steps) -> Iterator[Check]:
    steps.expect(len(checks))
    for label, run in checks.items():
        steps.advance(f"comparing {label} with PyTorch")
        yield from run()


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch's last bits then do not depend on how many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
