"""CUDA where there is none: what is missing is named."""

from __future__ import annotations

import onnxruntime
import pytest

from export.manifest import Device
from server import loading
from server.cuda import PROVIDER, DeviceError, free_memory, why_not_loaded
from server.loading import _default_caches
from tests.server.test_limits import decoder_manifest
from tests.server.test_memory_budget import sized
from tests.server.test_options import settings_of


def test_a_wheel_without_cuda_has_no_memory_to_tell() -> None:
    with pytest.raises(DeviceError, match="install the extra `cuda` instead of `cpu`"):
        free_memory(0)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [PROVIDER])
    monkeypatch.setattr("server.cuda._DRIVER", "libcuda-of-nobody.so.1")
    with pytest.raises(DeviceError, match=r"^libcuda-of-nobody.so.1 cannot be loaded; .* driver"):
        free_memory(0)


def test_a_missing_library_is_named_without_its_path() -> None:
    assert why_not_loaded().startswith("libonnxruntime_providers_cuda.so cannot be loaded")


def test_a_cache_on_cuda_is_a_part_of_that_devices_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = sized(decoder_manifest(device=Device.CUDA))
    monkeypatch.setattr(loading, "free_memory", lambda index: 5000 + 4_000_000)
    caches = _default_caches([manifest], {manifest.name: manifest}, settings_of("artefact"))
    assert caches == {manifest.name: 1_000_000}
