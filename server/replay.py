"""reference.npz, replayed: the outputs that were stored at build, on a device that is new to them.

An artefact for CUDA is verified where it is built, which may be without a GPU. Such a server
computes the reference itself before it serves, and refuses to where the numbers are others.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from export.manifest import REFERENCE_FILE
from server.artefact import Artefact, ArtefactError
from server.cuda import DeviceError
from server.limits import DecoderLimits
from server.runner import PromptRunner, SourceRunner, TextRunner

Rows = NDArray[np.float32]
Ids = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]


def needs_replay(artefact: Artefact) -> bool:
    """Whether nobody has verified the artefact on its device."""
    return artefact.manifest.device not in artefact.manifest.verified_on


def replay_encoder(artefact: Artefact, runner: TextRunner) -> None:
    """Computes the stored batch and compares.

    Raises:
        ArtefactError: the artefact stores nothing that can be replayed.
        DeviceError: the device computes other numbers.
    """
    stored = _read(artefact)
    texts = _texts(artefact, stored)
    try:
        wanted = stored["embeddings"]
    except LookupError as error:
        raise _unreadable(artefact, error) from None
    _compare(artefact, runner.provider, runner.encode(texts), wanted)


def replay_decoder(artefact: Artefact, runner: PromptRunner, limits: DecoderLimits) -> None:
    """Computes the stored steps in the first row, as far as it goes, and compares each.

    Raises:
        ArtefactError, DeviceError: as `replay_encoder`.
    """
    past = 0
    for step, wanted in _steps(artefact, _read(artefact)):
        ids = step[0].tolist()
        if past + len(ids) > limits.capacity:
            return
        if len(ids) == 1:
            found = runner.decode(ids, [past])
        else:
            for start in range(0, len(ids), limits.prefill_chunk):
                chunk = ids[start : start + limits.prefill_chunk]
                last = start + len(chunk) == len(ids)
                found = runner.prefill(0, chunk, past + start, logits=int(last))
        _compare(artefact, runner.provider, found, wanted)
        past += len(ids)


def replay_targets(artefact: Artefact, runner: SourceRunner, limits: DecoderLimits) -> None:
    """Encodes the stored sources that a row holds, and computes the stored steps of their targets
    together, as far as the rows go.

    Raises:
        ArtefactError, DeviceError: as `replay_encoder`.
    """
    stored = _read(artefact)
    texts = _texts(artefact, stored)
    fitting = [i for i, text in enumerate(texts) if len(text) <= limits.source_capacity]
    fitting = fitting[: limits.slots]
    for row, index in enumerate(fitting):
        runner.encode([texts[index]])
        runner.place(0, row)
    for past, (ids, wanted) in enumerate(_steps(artefact, stored)):
        if not fitting or past == limits.capacity:
            return
        found = runner.decode(ids[fitting, 0].tolist(), [past] * len(fitting))
        _compare(artefact, runner.provider, found, wanted[fitting])


def _texts(artefact: Artefact, stored: Arrays) -> list[list[int]]:
    """The ids of each stored text."""
    try:
        ends = np.cumsum(stored["lengths"])
        return [text.tolist() for text in np.split(stored["input_ids"], ends[:-1])]
    except (LookupError, ValueError) as error:
        raise _unreadable(artefact, error) from None


def _steps(artefact: Artefact, stored: Arrays) -> Iterator[tuple[Ids, Rows]]:
    """The ids `[B, S]` of each step, and the logits `[B, vocab]` of the last of each row."""
    try:
        numbers = {int(name.split(".")[1]) for name in stored if name.startswith("step.")}
        for step in sorted(numbers):
            yield stored[f"step.{step}.input_ids"], stored[f"step.{step}.logits"]
    except (LookupError, ValueError) as error:
        raise _unreadable(artefact, error) from None


def _compare(artefact: Artefact, provider: str, found: Rows, wanted: Rows) -> None:
    """In standard deviations of each row, as the bound of a reduced precision is given."""
    if found.shape != wanted.shape:
        raise _unreadable(artefact, f"{wanted.shape} is stored and {found.shape} computed")
    bound = artefact.manifest.parity.tolerance
    spread = np.maximum(wanted.std(axis=-1), np.finfo(np.float32).tiny)
    worst = float((np.abs(found - wanted).max(axis=-1) / spread).max())
    if not worst <= bound:  # nor NaN
        raise DeviceError(
            f"{artefact.directory}: {provider} computes other numbers than {REFERENCE_FILE} holds: "
            f"they differ by {worst:.3g} standard deviations, and {bound:.3g} may be"
        )


def _read(artefact: Artefact) -> Arrays:
    try:
        with np.load(io.BytesIO(artefact.files[REFERENCE_FILE][:])) as stored:
            return dict(stored)
    except (BadZipFile, EOFError, LookupError, ValueError) as error:
        raise _unreadable(artefact, error) from None


def _unreadable(artefact: Artefact, error: object) -> ArtefactError:
    return ArtefactError(f"{artefact.directory}: {REFERENCE_FILE} cannot be replayed: {error}")
