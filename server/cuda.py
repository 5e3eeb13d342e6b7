"""CUDA as ONNX Runtime uses it: its libraries, which of them is missing, and who runs each node."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import onnxruntime

PROVIDER = "CUDAExecutionProvider"
# Nodes on shapes, which ONNX Runtime rightly computes on the CPU; any other there is a fallback.
CPU_NODES = frozenset(
    {
        *("Add", "Cast", "Concat", "Gather", "Mul", "Range"),
        *("Reshape", "Shape", "Slice", "Squeeze", "Sub", "Unsqueeze"),
    }
)
_DRIVER = "libcuda.so.1"
_DRIVER_ADVICE = "install the NVIDIA driver, 580 or newer"
_LIBRARY_ADVICE = "install the extra `cuda`"


class DeviceError(Exception):
    """The device that an artefact needs is not there; says what is missing and what to do."""


def load_libraries() -> None:
    """Loads NVIDIA's libraries, without cuDNN: it would change the attention kernels.

    Raises:
        DeviceError: the installed onnxruntime knows no CUDA.
    """
    _check_wheel()
    os.environ.setdefault("ORT_ENABLE_CUDNN_FLASH_ATTENTION", "0")
    onnxruntime.preload_dlls(cudnn=False)


def why_not_loaded() -> str:
    """What keeps ONNX Runtime from CUDA, which it says in its log alone."""
    provider = Path(onnxruntime.__file__).with_name("capi") / "libonnxruntime_providers_cuda.so"
    try:
        ctypes.CDLL(str(provider))
    except OSError as error:
        library = Path(str(error).partition(":")[0]).name
        advice = _DRIVER_ADVICE if library == _DRIVER else _LIBRARY_ADVICE
        return f"{library} cannot be loaded; {advice}"
    return f"the driver does not take CUDA 13; {_DRIVER_ADVICE}"


def check_placement(session: Any) -> None:
    """Refuses a session of which ONNX Runtime put a node on the CPU without a word.

    Raises:
        DeviceError: naming the operators.
    """
    strays = {
        node.op_type
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name != PROVIDER
        for node in part.get_nodes()
    }
    if strays := strays - CPU_NODES:
        raise DeviceError(f"{PROVIDER} has no kernel for {', '.join(sorted(strays))}")


def free_memory(device_index: int) -> int:
    """Bytes that nobody uses on a device.

    Raises:
        DeviceError: there is no such device, no driver, or no onnxruntime that knows CUDA.
    """
    _check_wheel()
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        raise DeviceError(f"{_DRIVER} cannot be loaded; {_DRIVER_ADVICE}") from None
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    for function, arguments in (
        (driver.cuInit, (0,)),
        (driver.cuDeviceGet, (ctypes.byref(device), device_index)),
        (driver.cuDevicePrimaryCtxRetain, (ctypes.byref(context), device)),
        (driver.cuCtxPushCurrent_v2, (context,)),
        (driver.cuMemGetInfo_v2, (ctypes.byref(free), ctypes.byref(total))),
        (driver.cuCtxPopCurrent_v2, (ctypes.byref(context),)),
        (driver.cuDevicePrimaryCtxRelease_v2, (device,)),
    ):
        if failure := function(*arguments):
            reason = ctypes.c_char_p(b"an unknown error")
            driver.cuGetErrorString(failure, ctypes.byref(reason))
            raise DeviceError(
                f"CUDA device {device_index} cannot be used: {(reason.value or b'').decode()}"
            )
    return free.value


def _check_wheel() -> None:
    if PROVIDER not in onnxruntime.get_available_providers():
        raise DeviceError(
            "the installed onnxruntime is the one for CPUs; install the extra `cuda` instead of "
            "`cpu` (never both)"
        )
