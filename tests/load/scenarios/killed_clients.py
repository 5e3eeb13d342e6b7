"""Clients that are killed (SIGKILL) in the middle of a stream, beside others that stay."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

from client.load.reference import Reference
from tests.contract.waiting import measured
from tests.e2e.server_process import ROOT, ServerProcess
from tests.load.accounts import assert_balanced, assert_faultless, assert_logged
from tests.load.callers import PATIENT, put_under_load
from tests.load.finding import Finding

_NAME = "formerd_requests_cancelled_total"
_QUIET_SECONDS = 60


async def killed_clients(
    server: ServerProcess,
    references: Sequence[Reference],
    generator: str,
    *,
    kills: int,
    tokens: int,
    clients: int,
    seconds: float,
) -> Finding:
    """Kills client after client, each as soon as the first of its `tokens` has come."""
    before = server.metrics().total(_NAME)
    load = asyncio.create_task(
        put_under_load(server.target, references, PATIENT, clients=clients, seconds=seconds)
    )
    for _ in range(kills):
        await _kill_one(server.target, generator, tokens)
    tally = await load
    noticed = await measured(server, lambda now: now.total(_NAME) - before >= kills)
    after = await asyncio.to_thread(server.wait_until_quiet, _QUIET_SECONDS)
    assert_faultless(tally)
    assert_logged(server, tally)
    assert_balanced(after)
    assert noticed.total(_NAME) - before == kills
    return Finding(
        f"{kills} clients killed in the middle of a stream, beside {clients} that stay",
        {"requests that ended with their clients": f"{kills} of {kills}"},
        tally,
    )


async def _kill_one(target: str, generator: str, tokens: int) -> None:
    command = [sys.executable, "-m", "client", "--target", target, "generate", "x", "--stream"]
    command += ["--model", generator, "--ignore-eos", "--max-new-tokens", str(tokens)]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    assert await process.stdout.read(1), "the client has ended without a word"
    process.kill()
    await process.wait()
