"""Sessions: what does not load is refused in one line, and no device is silently another."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest

from export.manifest import Device
from server.artefact import ArtefactError, load_artefact
from server.cuda import DeviceError
from server.errors import OverLimit, StepFailed
from server.session import open_session, step_error
from tests.artefacts import decoder_artefact, encoder_artefact, move_weights, reseal
from tests.file_layouts import linked
from tests.server.engines import artefact

CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"


def test_a_session_runs_on_the_provider_of_the_artefacts_device() -> None:
    assert open_session(artefact(encoder_artefact()), "encoder").get_providers() == [CPU]


def test_a_graph_that_does_not_load_is_refused_in_one_line(tmp_path: Path) -> None:
    directory = shutil.copytree(decoder_artefact(), tmp_path / "decoder")
    content = (directory / "decoder.onnx").read_bytes()
    (directory / "decoder.onnx").write_bytes(content[: len(content) // 2])
    reseal(directory)
    with pytest.raises(ArtefactError, match=r"decoder\.onnx") as caught:
        open_session(load_artefact(directory), "decoder")
    assert "\n" not in str(caught.value)


def test_a_graph_that_is_not_what_the_manifest_declares_is_refused(tmp_path: Path) -> None:
    directory = shutil.copytree(decoder_artefact(), tmp_path / "decoder")
    shutil.copy(encoder_artefact() / "encoder.onnx", directory / "mover.onnx")
    shutil.copy(encoder_artefact() / "encoder.data", directory)
    reseal(
        directory,
        lambda manifest: replace(
            manifest,
            graphs=manifest.graphs
            | {"mover": replace(manifest.graphs["mover"], weights=("encoder.data",))},
        ),
    )
    with pytest.raises(ArtefactError, match=r"mover\.onnx has other inputs than the manifest"):
        open_session(load_artefact(directory), "mover")


@pytest.mark.parametrize("layout", ["hub cache", "mounted volume", "hard link"])
def test_links_to_verified_files_are_served(tmp_path: Path, layout: str) -> None:
    """BAD-03: a hub's blobs lie under other names, a volume's files behind two links."""
    directory = linked(encoder_artefact(), tmp_path, layout)
    assert open_session(load_artefact(directory), "encoder").get_providers() == [CPU]


def test_what_was_verified_is_what_is_opened(tmp_path: Path) -> None:
    """Whatever takes the files' place between the two."""
    directory = shutil.copytree(encoder_artefact(), tmp_path / "encoder")
    verified = load_artefact(directory)
    for path in directory.iterdir():
        path.unlink()
        path.write_bytes(b"another file")
    assert open_session(verified, "encoder").get_providers() == [CPU]


@pytest.mark.parametrize("place", ["parent", "absolute", "device", "unlisted", "pipe"])
def test_weights_elsewhere_are_refused(tmp_path: Path, place: str) -> None:
    """BAD-03: the location that the graph itself names, whatever is there."""
    directory = shutil.copytree(encoder_artefact(), tmp_path / "encoder")
    shutil.copy(directory / "encoder.data", tmp_path / "outside.data")
    os.mkfifo(tmp_path / "pipe")
    locations = {
        "parent": "../outside.data",
        "absolute": str(tmp_path / "outside.data"),
        "device": "/dev/zero",
        "unlisted": "manifest.json",
        "pipe": "../pipe",
    }
    move_weights(directory, locations[place])
    reseal(directory)
    with pytest.raises(ArtefactError, match=r"encoder\.onnx .*not found from the table") as caught:
        open_session(load_artefact(directory), "encoder")
    assert "\n" not in str(caught.value)


def test_cuda_without_its_wheel_is_refused() -> None:
    """GPU-01: the CPU's wheel is installed here."""
    for_cuda = replace(
        artefact(encoder_artefact()),
        manifest=replace(artefact(encoder_artefact()).manifest, device=Device.CUDA),
    )
    with pytest.raises(DeviceError, match="install the extra `cuda` instead of `cpu`"):
        open_session(for_cuda, "encoder")


class CudaRuntime:
    """Stands for the GPU's wheel: what it makes of a session, in the three ways that it fails."""

    def __init__(
        self, *, providers: tuple[str, ...] = (CUDA, CPU), on_cpu: str = "", error: str = ""
    ) -> None:
        self._providers = providers
        self._on_cpu = on_cpu.split()
        self._error = error

    def __call__(self, *arguments: Any, **options: Any) -> CudaRuntime:
        if self._error:
            raise RuntimeError(self._error)
        return self

    def get_providers(self) -> list[str]:
        return list(self._providers)

    def disable_fallback(self) -> None:
        pass

    def get_provider_graph_assignment_info(self) -> list[Any]:
        parts = ((CUDA, ["MatMul", "GroupQueryAttention"]), (CPU, self._on_cpu))
        return [
            SimpleNamespace(
                ep_name=provider,
                get_nodes=lambda types=types: [SimpleNamespace(op_type=each) for each in types],
            )
            for provider, types in parts
        ]


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        (CudaRuntime(providers=(CPU,)), "fell back to CPUExecutionProvider: .*providers_cuda.so"),
        (CudaRuntime(error="CUDA failure 101: invalid device ordinal"), "device 99 .* ordinal"),
        (CudaRuntime(error="/a/b.cc:71 Invalid device ID: 99, must be"), "used: Invalid device ID"),
        (CudaRuntime(on_cpu="Shape GroupQueryAttention"), "no kernel for GroupQueryAttention"),
        (CudaRuntime(on_cpu="Shape Gather"), ""),
    ],
)
def test_cuda_that_is_not_really_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, runtime: CudaRuntime, message: str
) -> None:
    """GPU-01: no driver, no such device, a node that was moved to the CPU without a word."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda cudnn: None)
    monkeypatch.setattr(onnxruntime, "InferenceSession", runtime)
    for_cuda = replace(
        artefact(encoder_artefact()),
        manifest=replace(artefact(encoder_artefact()).manifest, device=Device.CUDA),
    )
    if message:
        with pytest.raises(DeviceError, match=message):
            open_session(for_cuda, "encoder", device_index=99)
    else:  # the stand-in has no inputs, so the next check refuses it
        monkeypatch.setattr(CudaRuntime, "get_inputs", lambda self: [], raising=False)
        monkeypatch.setattr(CudaRuntime, "get_outputs", lambda self: [], raising=False)
        with pytest.raises(ArtefactError, match="other inputs"):
            open_session(for_cuda, "encoder", device_index=99)


def test_an_exception_of_a_run_is_not_repeated_to_the_caller() -> None:
    assert str(step_error(RuntimeError("node /secret/path failed"))) == "computing failed"
    assert isinstance(step_error(RuntimeError("boom")), StepFailed)
    memory = RuntimeError("Available memory of 5 is smaller than requested bytes of 9")
    assert isinstance(step_error(memory), OverLimit)
