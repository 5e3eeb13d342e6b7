"""GPU-01: a server that was asked for CUDA and cannot have it does not start, and says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.artefacts import encoder_artefact
from tests.cuda.artefacts import cuda_decoder, cuda_encoder
from tests.cuda.rig.rig import Rig

CHECK = ("-m", "server", "--check")
# As where the extra `cuda` has not brought NVIDIA's libraries.
WITHOUT_LIBRARIES = """
import sys, onnxruntime
onnxruntime.preload_dlls = lambda **options: None
from server.command import main
main(["--check", sys.argv[1]])
"""


def refusal(rig: Rig, *arguments: str, driver: bool = True, devices: int = 1) -> str:
    """What a server says that does not start."""
    done = rig.run(*arguments, driver=driver, devices=devices)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stderr.splitlines()[-1]


def test_no_driver(rig: Rig) -> None:
    message = refusal(rig, *CHECK, str(cuda_encoder()), driver=False)
    assert "libcuda.so.1 cannot be loaded; install the NVIDIA driver, 580 or newer" in message


def test_no_libraries(rig: Rig) -> None:
    message = refusal(rig, "-c", WITHOUT_LIBRARIES, str(cuda_encoder()))
    assert "libcublasLt.so.13 cannot be loaded; install the extra `cuda`" in message


def test_no_device(rig: Rig) -> None:
    message = refusal(rig, *CHECK, str(cuda_encoder()), devices=0)
    assert "CUDA device 0 cannot be used" in message
    assert "no CUDA-capable device is detected" in message


def test_no_such_device(rig: Rig) -> None:
    message = refusal(rig, *CHECK, "--device", "cuda:99", str(cuda_encoder()))
    assert "CUDA device 99 cannot be used" in message


@pytest.mark.parametrize("build", [cuda_encoder, cuda_decoder])
def test_a_device_that_computes_other_numbers(rig: Rig, build: Callable[[], Path]) -> None:
    """The stand-in's kernels do nothing, which the stored reference shows."""
    message = refusal(rig, *CHECK, str(build()))
    assert "CUDAExecutionProvider computes other numbers than reference.npz holds" in message


def test_an_artefact_for_the_cpu(rig: Rig) -> None:
    message = refusal(rig, *CHECK, "--device", "cuda", str(encoder_artefact()))
    assert "built for cpu, but --device is cuda: build it again with that --device" in message
