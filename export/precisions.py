"""Which precisions a device has; `recipe.py` says what each of them is.

It loads neither PyTorch nor ONNX, so that whoever only asks is quick and small.
"""

from __future__ import annotations

from export.manifest import Device, Precision

# The first of each is the one that nobody has to ask for.
_PRECISIONS = {
    Device.CPU: (Precision.FP32, Precision.INT8, Precision.INT4, Precision.INT8_DYNAMIC),
    Device.CUDA: (Precision.FP16,),
}
_REASONS = {
    (Device.CUDA, Precision.BF16): "only a GPU can verify it: the CPU has no kernels in bf16",
}


class PrecisionError(ValueError):
    """A precision that a device or a kind of model does not have; the message names both."""


def check_precision(device: Device, precision: Precision) -> None:
    """Refuses a precision that a device does not have.

    Raises:
        PrecisionError: naming both, and what the device has.
    """
    if precision in _PRECISIONS[device]:
        return
    reason = f" ({reason})" if (reason := _REASONS.get((device, precision))) else ""
    raise PrecisionError(
        f"--precision {precision} with --device {device} is not supported{reason}; "
        f"{device} has {', '.join(_PRECISIONS[device])}"
    )


def default_precision(device: Device) -> Precision:
    """The one that nobody has to ask for."""
    return _PRECISIONS[device][0]
