"""`python -m tests.gpu.run DIRECTORY NAME`: one experiment, its findings printed as JSON.

With ONNX Runtime's GPU wheel, on what `tests.gpu.prepare` has written. Without a NAME: its free
memory, or why there is no GPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from server.cuda import DeviceError, free_memory
from tests.gpu.decoder_experiments import DECODER_EXPERIMENTS
from tests.gpu.encoder_experiments import ENCODER_EXPERIMENTS
from tests.gpu.experiment import Findings, Setting

EXPERIMENTS = ENCODER_EXPERIMENTS | DECODER_EXPERIMENTS


def main(directory: Path | None = None, name: str = "") -> None:
    """Runs what was asked for."""
    if directory is None:
        try:
            print(json.dumps({"free_bytes": free_memory(0)}))
        except DeviceError as error:
            print(json.dumps({"skipped": str(error)}))
        return
    findings = Findings()
    EXPERIMENTS[name](Setting.load(directory), findings)
    print(json.dumps(findings.to_json()))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None, *sys.argv[2:])
