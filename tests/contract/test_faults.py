"""What goes wrong inside: loading that lasts, steps that hang, engines that die."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tests.artefacts import decoder_artefact, encoder_artefact
from tests.contract.faulty_server import FATAL_TEXTS
from tests.contract.stubs import Stubs, embed_request, error_of, generate_request
from tests.contract.waiting import measured
from tests.e2e.server_process import ServerProcess, starting_server

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
PROMPT_SECONDS = 20.0  # on a machine that is busy; what lasts would last for minutes


@pytest.fixture
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Has `faulty_server` plant the fault that the test is given as a parameter."""
    monkeypatch.setenv("FAULT", request.param)
    return str(request.param)


@contextmanager
def faulty_server(*flags: str) -> Iterator[ServerProcess]:
    directories = [encoder_artefact(), decoder_artefact()]
    with starting_server(directories, *flags, module="tests.contract.faulty_server") as server:
        yield server


@pytest.mark.parametrize(
    ("fault", "stage", "flags", "number", "code"),
    [
        ("verifying lasts", "verifying", (), signal.SIGTERM, 0),
        ("loading lasts", "loading", (), signal.SIGTERM, 0),
        ("loading lasts", "loading", (), signal.SIGINT, 0),
        ("loading lasts", "loading", ("--check",), signal.SIGTERM, 130),
    ],
    indirect=["fault"],
)
def test_a_signal_before_it_serves_ends_it_at_once(
    fault: str, stage: str, flags: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    with faulty_server(*flags) as server:
        while not server.events(stage):
            assert server.process.poll() is None, server.log()
            time.sleep(0.02)
        sent = time.monotonic()
        server.signal(number)
        assert server.wait() == code, server.log()
        assert time.monotonic() - sent < PROMPT_SECONDS
        assert not server.events("serving")


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("a step hangs", grpc.StatusCode.UNAVAILABLE),
        ("an engine dies", grpc.StatusCode.INTERNAL),
    ],
    indirect=["fault"],
)
async def test_a_model_that_fails_takes_health_and_process_with_it(
    fault: str, status: grpc.StatusCode
) -> None:
    with faulty_server("--grace-seconds", "2") as server:
        server.wait_until_ready()
        async with grpc.aio.insecure_channel(server.target) as channel:
            stubs = Stubs(channel)
            watches = [
                stubs.health.Watch(health_pb2.HealthCheckRequest(service=service))
                for service in ("", "formerd.v1/tiny-encoder")
            ]
            assert [(await watch.read()).status for watch in watches] == [SERVING] * 2
            other = stubs.generation.GenerateStream(generate_request(tokens=200))
            await other.read()
            error = await error_of(stubs.embedding.Embed(embed_request(*["a"] * FATAL_TEXTS)))
            assert error.code() is status
            assert [(await watch.read()).status for watch in watches] == [NOT_SERVING] * 2
            while await other.read() is not grpc.aio.EOF:
                pass
            assert await other.code() is grpc.StatusCode.OK, "another model's call is completed"
        assert server.wait() == 1
        [line] = server.events("a model has died or hangs")
        assert line["model"] == "tiny-encoder"


@pytest.mark.parametrize("fault", ["a step hangs"], indirect=True)
async def test_a_model_that_hangs_is_not_ready_while_others_complete(fault: str) -> None:
    with faulty_server("--grace-seconds", "600") as server:
        server.wait_until_ready()
        async with grpc.aio.insecure_channel(server.target) as channel:
            stubs = Stubs(channel)
            hanging = stubs.embedding.Embed(embed_request(*["a"] * FATAL_TEXTS))
            await measured(server, lambda snapshot: snapshot.total("formerd_ready") == 0)
            refused = await error_of(stubs.generation.Generate(generate_request()))
            assert refused.code() is grpc.StatusCode.UNAVAILABLE
            server.signal(signal.SIGTERM)
            await asyncio.sleep(0.2)  # two at the same time would be one
            server.signal(signal.SIGTERM)
            assert (await error_of(hanging)).code() is grpc.StatusCode.UNAVAILABLE
        assert server.wait() == 1
