"""`python -m tests.contract.faulty_server DIR...`: the server with a fault, which $FAULT names."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from server.command import main
from server.encoder_runner import EncoderRunner
from server.encoder_worker import EncoderWorker

FAULTS = (
    "verifying lasts",
    "loading lasts",
    "a step hangs",
    "an engine dies",
    "no OpenTelemetry",
)
FATAL_TEXTS = 3  # a batch of so many has the step hang, or the engine die


def take_long(*_: Any, **__: Any) -> None:
    """Does not end while a test lasts."""
    time.sleep(600)


def plant(fault: str) -> None:
    """Replaces a part of the server for as long as the process lives."""
    match fault:
        case "verifying lasts":
            patch("server.startup.load_artefacts", take_long).start()
        case "loading lasts":
            patch.object(EncoderRunner, "warm_up", take_long).start()
        case "a step hangs":
            patch("server.engine_thread._HUNG_SECONDS", 1.0).start()
            patch.object(EncoderRunner, "encode", _encode_or_hang).start()
        case "an engine dies":
            patch.object(EncoderWorker, "_run", _run_or_die).start()
        case "no OpenTelemetry":
            patch.dict(sys.modules, {"opentelemetry": None}).start()
        case _:
            raise ValueError(f"{fault!r} is none of {FAULTS}")


_encode, _run = EncoderRunner.encode, EncoderWorker._run


def _encode_or_hang(runner: EncoderRunner, texts: Sequence[Sequence[int]]) -> Any:
    if len(texts) == FATAL_TEXTS:
        take_long()
    return _encode(runner, texts)


def _run_or_die(worker: EncoderWorker, batch: Any) -> Any:
    if len(batch) == FATAL_TEXTS:
        raise RuntimeError("planted")
    return _run(worker, batch)


if __name__ == "__main__":
    plant(os.environ["FAULT"])
    main()
