"""One engine in a process of its own, driven by lines of JSON.

    python -m bench.engines.worker CLASS MODEL THREADS [ARGUMENT...]

It prints a line when it is ready, and then answers each line `{"call": METHOD, "with": ARGUMENTS}`
with what the method gave. It runs in the environment of its engine, so it imports nothing else.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from bench.engines.engine import Engine, Translator


def main(name: str, model: str, threads: str, *arguments: str) -> None:
    """Serves until its input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print whatever they like
    engine = open_engine(name, Path(model), int(threads), *arguments)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(engine, command["call"])(**command["with"])
        print(json.dumps(answer, default=asdict), file=answers, flush=True)


def open_engine(name: str, model: Path, threads: int, *arguments: str) -> Engine | Translator:
    """The engine `module:Class` of this package."""
    module, _, kind = name.partition(":")
    engine: Engine | Translator = getattr(importlib.import_module(f"bench.engines.{module}"), kind)(
        model, threads, *arguments
    )
    return engine


if __name__ == "__main__":
    main(*sys.argv[1:])
