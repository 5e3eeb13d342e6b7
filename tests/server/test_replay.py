"""The stored reference on a device that is new to the artefact: the same numbers, or no service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from export.manifest import REFERENCE_FILE
from server.artefact import Artefact, ArtefactError
from server.cuda import DeviceError
from server.decoder_runner import DecoderRunner
from server.encoder_runner import EncoderRunner
from server.limits import DecoderLimits, encoder_limits
from server.seq2seq_runner import Seq2seqRunner
from tests.artefacts import decoder_artefact, encoder_artefact, encoder_decoder_artefact
from tests.server.engines import artefact

KINDS = pytest.mark.parametrize(
    "directory", [encoder_artefact, decoder_artefact, encoder_decoder_artefact]
)


def warm_up(artefact: Artefact, chunk: int = 16, capacity: int = 64, source: int = 64) -> None:
    """As the engines do before a model is ready."""
    limits = DecoderLimits(2, capacity, chunk, 1, 1, 1.0)
    if artefact.manifest.kind == "encoder":
        EncoderRunner(artefact, encoder_limits(artefact.manifest)).warm_up()
    elif artefact.manifest.kind == "decoder":
        DecoderRunner(artefact, limits).warm_up()
    else:
        Seq2seqRunner(artefact, replace(limits, source_capacity=source)).warm_up()


def unverified(directory: Path, tolerance: float | None = None) -> Artefact:
    """An artefact that nobody has verified on its device."""
    verified = artefact(directory)
    parity = verified.manifest.parity
    if tolerance is not None:
        parity = replace(parity, tolerance=tolerance)
    return replace(verified, manifest=replace(verified.manifest, verified_on=(), parity=parity))


@KINDS
def test_the_same_numbers_are_served(directory: Callable[[], Path]) -> None:
    warm_up(unverified(directory()))


@KINDS
def test_other_numbers_are_refused(directory: Callable[[], Path]) -> None:
    with pytest.raises(DeviceError, match=r"CPUExecutionProvider computes other numbers than ref"):
        warm_up(unverified(directory(), tolerance=1e-12))


@pytest.mark.parametrize(("chunk", "capacity"), [(64, 64), (5, 25), (16, 20), (64, 2)])
def test_a_reference_is_replayed_as_far_as_a_row_holds(chunk: int, capacity: int) -> None:
    warm_up(unverified(decoder_artefact()), chunk, capacity)


@pytest.mark.parametrize(("capacity", "source"), [(64, 64), (3, 40), (64, 7), (1, 1)])
def test_targets_are_replayed_as_far_as_rows_hold_them(capacity: int, source: int) -> None:
    warm_up(unverified(encoder_decoder_artefact()), capacity=capacity, source=source)


@KINDS
@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_a_reference_that_cannot_be_read_is_refused(
    directory: Callable[[], Path], content: bytes
) -> None:
    broken = unverified(directory())
    broken = replace(broken, files=broken.files | {REFERENCE_FILE: content})
    with pytest.raises(ArtefactError, match=r"reference\.npz cannot be replayed"):
        warm_up(broken)


@KINDS
def test_an_artefact_verified_on_its_device_is_taken_at_its_word(
    directory: Callable[[], Path],
) -> None:
    verified = artefact(directory())
    warm_up(replace(verified, files=verified.files | {REFERENCE_FILE: b"never read"}))
