"""Where ONNX Runtime puts the graphs' nodes on CUDA, and what a run copies: no kernel is computed.

With the real GPU wheel over a stand-in for the device (tests/cuda/rig), which is opt-in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from export.manifest import load_manifest
from tests.cuda.artefacts import (
    cuda_decoder,
    cuda_encoder,
    cuda_encoder_decoder,
    cuda_learned_decoder,
)
from tests.cuda.probed import CHUNK, ROWS, SLOTS, TEXTS, Phase, Probed

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
DECODERS = pytest.mark.parametrize("build", [cuda_decoder, cuda_learned_decoder])
KINDS = pytest.mark.parametrize(
    "build", [cuda_encoder, cuda_decoder, cuda_learned_decoder, cuda_encoder_decoder]
)
# Integer arithmetic on shapes; what else is on the CPU has come there without being asked to.
SHAPE_OPERATORS = {
    *("Shape", "Squeeze", "Unsqueeze", "Concat", "Gather", "Slice", "Cast", "Range"),
    *("Add", "Sub", "Mul", "Reshape"),
}
ID_BYTES, LENGTH_BYTES, FLOAT_BYTES = 8, 4, 4
Probe = Callable[[Path], Probed]
Build = Callable[[], Path]


@KINDS
def test_nothing_but_shapes_is_computed_on_the_cpu(probe: Probe, build: Build) -> None:
    for role, providers in probe(build()).placed.items():
        assert set(providers) <= {CUDA, CPU}
        assert set(providers.get(CPU, {})) <= SHAPE_OPERATORS, role
        assert sum(providers[CUDA].values()) > sum(providers.get(CPU, {}).values())


@DECODERS
@pytest.mark.parametrize(("phase", "logits"), [(Phase.PREFILL, 1), (Phase.DECODE, ROWS)])
def test_a_step_copies_ids_lengths_and_logits(
    probe: Probe, build: Build, phase: Phase, logits: int
) -> None:
    """The cache is updated in place, and nothing is allocated."""
    asked = probe(build()).asked[phase]
    row = load_manifest(build()).vocabulary_size * FLOAT_BYTES
    assert asked.copied("on_device") == []
    assert asked.copied("to_host") == [logits * row]
    assert asked.copied("to_device") == [max(SLOTS, CHUNK) * ID_BYTES, SLOTS * LENGTH_BYTES]
    assert asked.allocations == ()


@DECODERS
def test_a_move_takes_two_kernels_a_cache(probe: Probe, build: Build) -> None:
    """One cuts the span out, one writes it; nothing else is copied, and never a whole row."""
    caches = len(load_manifest(build()).graphs["mover"].outputs)
    asked = probe(build()).asked[Phase.MOVE]
    assert asked.launches == 2 * caches
    assert asked.copied("on_device") == []
    assert asked.copied("to_host") == []
    assert max(asked.copied("to_device")) <= 3 * ID_BYTES


def test_an_encoder_copies_its_inputs_and_the_vectors(probe: Probe) -> None:
    asked = probe(cuda_encoder()).asked[Phase.ENCODE]
    cells = len(TEXTS) * max(map(len, TEXTS))
    assert max(asked.copied("to_device")) <= cells * ID_BYTES
    assert max(asked.copied("on_device")) <= cells * ID_BYTES  # the maps of another shape
    pooling = load_manifest(cuda_encoder()).pooling
    assert pooling is not None
    assert asked.copied("to_host") == [len(TEXTS) * pooling.dimensions * FLOAT_BYTES]


def test_a_step_of_an_encoder_decoder_copies_ids_lengths_and_logits(probe: Probe) -> None:
    """Neither cache is copied: the target's is updated in place, and the source's is only read."""
    asked = probe(cuda_encoder_decoder()).asked[Phase.DECODE]
    row = load_manifest(cuda_encoder_decoder()).vocabulary_size * FLOAT_BYTES
    assert asked.copied("on_device") == []
    assert asked.copied("to_host") == [ROWS * row]
    lengths = SLOTS * LENGTH_BYTES
    assert asked.copied("to_device") == [SLOTS * ID_BYTES, lengths, lengths]
    assert asked.allocations == ()


def test_sources_stay_on_the_device(probe: Probe) -> None:
    """What a decoder reads of them is left there, and moved by the same two kernels a cache."""
    probed = probe(cuda_encoder_decoder())
    cells = len(TEXTS) * max(map(len, TEXTS))
    assert probed.asked[Phase.ENCODE].copied("to_host") == []
    assert max(probed.asked[Phase.ENCODE].copied("to_device")) <= cells * ID_BYTES
    caches = len(load_manifest(cuda_encoder_decoder()).graphs["mover"].outputs)
    move = probed.asked[Phase.MOVE]
    assert move.launches == 2 * 2 * caches  # of the target, and of the source
    assert move.copied("on_device") == []
    assert move.copied("to_host") == []
