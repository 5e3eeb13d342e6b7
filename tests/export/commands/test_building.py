"""The build command, as a process that waits for those that work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def test_who_waits_has_loaded_neither_pytorch_nor_onnx() -> None:
    program = (
        "import sys, export.__main__, export.commands.building\n"
        "print(*sorted({'torch', 'onnx', 'onnx_ir', 'onnxruntime'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""
