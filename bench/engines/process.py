"""The measuring side of `bench.engines.worker`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from bench.engines.catalogue import EngineSpec
from bench.engines.engine import Generated, Ids
from server.huge_pages import HUGE_PAGES_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
_STOP_SECONDS = 30


class EngineFailed(Exception):
    """An engine could not be opened or has died; says what it printed last."""


class EngineProcess:
    """An engine elsewhere, used like one here."""

    def __init__(self, spec: EngineSpec, process: subprocess.Popen[str], log: IO[str]) -> None:
        self.spec = spec
        self._process = process
        self._log = log

    def generate(self, prompts: Sequence[Ids], new_tokens: int) -> Generated:
        """As `Engine.generate`; the times are the engine's own.

        Raises:
            EngineFailed: the process has died.
        """
        return Generated(**self._call("generate", prompts=prompts, new_tokens=new_tokens))

    def translate(self, sources: Sequence[Ids], new_tokens: Sequence[int]) -> list[list[int]]:
        """As `Translator.translate`.

        Raises:
            EngineFailed: the process has died.
        """
        targets: list[list[int]] = self._call("translate", sources=sources, new_tokens=new_tokens)
        return targets

    def wait_until_ready(self) -> None:
        """Returns when the checkpoint is loaded."""
        self._answer()

    def _call(self, method: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        command = json.dumps({"call": method, "with": arguments})
        try:
            print(command, file=self._process.stdin, flush=True)
        except OSError:
            raise self._failure() from None
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise self._failure()
        return json.loads(line)

    def _failure(self) -> EngineFailed:
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return EngineFailed(f"{self.spec.name}: {lines[-1] if lines else 'it ended silently'}")


@contextmanager
def engine_process(spec: EngineSpec, threads: int) -> Iterator[EngineProcess]:
    """An engine that is ready; it ends with the block.

    Raises:
        EngineFailed: it is not installed, or cannot read its checkpoint.
    """
    command = [spec.python, "-m", "bench.engines.worker", spec.engine, spec.model, threads]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*map(str, command), *spec.arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(spec, threads),
        )
        try:
            engine = EngineProcess(spec, process, log)
            engine.wait_until_ready()
            yield engine
        finally:
            _end(process)


def environment(spec: EngineSpec, threads: int) -> dict[str, str]:
    """The variables that an engine starts with; this process itself has huge pages."""
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    if not spec.huge_pages:
        variables.pop(HUGE_PAGES_VARIABLE, None)
    return variables


def _end(process: subprocess.Popen[str]) -> None:
    """Closes its input, which ends it; kills it if that does not."""
    if process.stdin is not None and process.poll() is None:
        process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
