"""What to build, checked before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from export.manifest import MANIFEST_FILE, NAME_PATTERN, Device, Precision
from export.precisions import check_precision
from model.config import PoolingMode


class BuildError(ValueError):
    """What was asked for cannot be built; the message names the option or the path."""


@dataclass(frozen=True)
class BuildOptions:
    """What to build.

    Raises:
        BuildError: an option cannot be followed.
        PrecisionError: the device does not have the precision.

    Attributes:
        output: the artefact's directory; it must not exist unless `force`.
        pooling: instead of the checkpoint's; None to keep it.
        max_length: tokens of a text, or positions of a cache slot; None for the model's own.
        tolerance: the largest difference from eager PyTorch that passes; None for the recipe's.
        accept_drift: publish what has moved further from fp32 than the precision should.
        standard_ops: whether every operator is to be one of the ONNX standard.
    """

    output: Path
    name: str
    device: Device = Device.CPU
    precision: Precision = Precision.FP32
    pooling: PoolingMode | None = None
    max_length: int | None = None
    tolerance: float | None = None
    accept_drift: bool = False
    standard_ops: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise BuildError(
                f"--name {self.name}; it must start with a letter or digit and hold at most 64 of "
                "a-z 0-9 . _ -"
            )
        if self.standard_ops and (self.device, self.precision) != (Device.CPU, Precision.FP32):
            raise BuildError(
                f"--standard-ops with --device {self.device} --precision {self.precision}; the "
                "operators of those are not in the ONNX standard: it is for cpu and fp32"
            )
        check_precision(self.device, self.precision)
        if self.output.exists() and not self.force:
            raise BuildError(f"{self.output} exists; --force replaces it")
        if self.output.exists() and not (self.output / MANIFEST_FILE).is_file():
            raise BuildError(f"{self.output} exists and is not an artefact; it is left alone")
        if not self.output.parent.is_dir():
            raise BuildError(f"{self.output.parent}, which is to hold the artefact, does not exist")
