"""Every call is counted once, however it ends, and ends with the status of what went wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
import structlog
from formerd.v1 import embedding_pb2 as pb
from formerd.v1.embedding_pb2_grpc import (
    EmbeddingServiceServicer,
    EmbeddingServiceStub,
    add_EmbeddingServiceServicer_to_server,
)
from google.rpc import error_details_pb2
from grpc_status.rpc_status import from_call
from prometheus_client import CollectorRegistry
from structlog.testing import LogCapture

from server import calls as calls_module
from server import context as context_module
from server.call import Call
from server.calls import Calls
from server.context import Context, write
from server.errors import InvalidInput, QueueFull
from server.metrics import METHODS, Metrics
from server.models import Model, Models
from server.tokenizer import Tokenizer
from tests.checkpoints import byte_tokenizer
from tests.server.manifests import encoder_manifest

Body = Callable[[Call], Awaitable[None]]


class Service(EmbeddingServiceServicer):
    """Does what a test tells it to within a call."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.body: Body = succeed
        self.stream_ended = asyncio.Event()

    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:  # noqa: N802
        async with self.calls.rpc(
            "Embed", context, request.model, request_id=request.request_id
        ) as call:
            await self.body(call)
            return pb.EmbedResponse(request_id=call.request_id)

    async def EmbedStream(  # type: ignore[override]  # noqa: N802
        self, requests: AsyncIterator[pb.EmbedRequest], context: Context
    ) -> None:
        """Writes far more than a reader who does not read takes in."""
        try:
            async with self.calls.rpc("EmbedStream", context, "encoder"):
                large = pb.EmbedStreamResponse(request_id="x" * 100_000)
                for _ in range(1000):
                    await write(context, large)
        finally:
            self.stream_ended.set()


class Bench:
    """A server of `Service`, a stub for it, and what it counts and logs."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry, ["encoder"])
        tokenizer = Tokenizer(byte_tokenizer().to_str().encode())
        model = Model(encoder_manifest("encoder"), tokenizer, self.metrics.model("encoder"))
        self.logged = LogCapture()
        log = structlog.wrap_logger(None, [self.logged], structlog.make_filtering_bound_logger(0))
        self.calls = Calls(Models([model]), self.metrics, log, max_request_seconds=5)
        self.calls.accepting = True
        self.service = Service(self.calls)

    async def __aenter__(self) -> Bench:
        self.server = grpc.aio.server()
        add_EmbeddingServiceServicer_to_server(self.service, self.server)
        port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self.stub = EmbeddingServiceStub(self.channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()
        await self.server.stop(0)

    async def embed(self, model: str = "encoder", **options: Any) -> grpc.aio.AioRpcError:
        """The error that a call ends with."""
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await self.stub.Embed(pb.EmbedRequest(model=model), **options)
        return raised.value

    def outcomes(self, model: str = "encoder") -> dict[str, float]:
        """How many calls ended with each code, those that occurred."""
        return {
            sample.labels["code"]: sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == "formerd_requests_total"
            and sample.labels["model"] == model
            and sample.value
        }

    def value(self, name: str, **labels: str) -> float:
        found = self.registry.get_sample_value(f"formerd_{name}", {"model": "encoder", **labels})
        assert found is not None
        return found

    async def until_quiet(self) -> None:
        """Waits until every call has been accounted for."""
        await asyncio.wait_for(self.calls.drained(), 5)
        assert sum(self.value("requests_in_flight", method=method) for method in METHODS) == 0
        started = sum(self.value("requests_started_total", method=method) for method in METHODS)
        assert started == sum(self.outcomes().values())


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with Bench() as bench:
        yield bench


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - a metric cannot be awaited
            await asyncio.sleep(0.01)


async def succeed(call: Call) -> None:
    """Nothing is to be done."""


async def wait_for_ever(call: Call) -> None:
    await asyncio.Event().wait()


def fail_with(error: BaseException) -> Body:
    async def body(call: Call) -> None:
        raise error

    return body


async def test_success_is_counted_timed_and_logged(bench: Bench) -> None:
    response = await bench.stub.Embed(pb.EmbedRequest(model="encoder", request_id="mine"))
    await bench.until_quiet()
    assert response.request_id == "mine"
    assert bench.outcomes() == {"OK": 1}
    assert bench.value("request_duration_seconds_count", method="Embed") == 1
    [line] = bench.logged.entries
    assert (line["event"], line["id"], line["status"]) == ("request", "mine", "OK")


async def test_a_call_without_an_id_gets_one(bench: Bench) -> None:
    first = await bench.stub.Embed(pb.EmbedRequest(model="encoder"))
    second = await bench.stub.Embed(pb.EmbedRequest(model="encoder"))
    assert first.request_id
    assert first.request_id != second.request_id


async def test_an_error_is_told_counted_as_rejected_and_not_timed(bench: Bench) -> None:
    bench.service.body = fail_with(InvalidInput("inputs is empty"))
    error = await bench.embed()
    await bench.until_quiet()
    assert (error.code(), error.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "inputs is empty",
    )
    assert bench.outcomes() == {"INVALID_ARGUMENT": 1}
    assert bench.value("requests_rejected_total", reason="invalid") == 1
    assert bench.value("request_duration_seconds_count", method="Embed") == 0


async def test_a_full_queue_says_when_to_try_again(bench: Bench) -> None:
    bench.service.body = fail_with(QueueFull("full"))
    status = from_call(await bench.embed())  # type: ignore[arg-type]
    assert status is not None
    retry = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(retry)
    assert retry.retry_delay.seconds == 1


async def test_a_fault_of_ours_is_logged_and_not_told(bench: Bench) -> None:
    bench.service.body = fail_with(RuntimeError("secret"))
    error = await bench.embed()
    await bench.until_quiet()
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(error.details())
    assert bench.outcomes() == {"INTERNAL": 1}
    assert any("secret" in repr(line.get("exc_info")) for line in bench.logged.entries)


async def test_an_unknown_model_is_counted_as_unknown(bench: Bench) -> None:
    error = await bench.embed(model="other")
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert bench.outcomes("unknown") == {"NOT_FOUND": 1}


async def test_nothing_is_accepted_while_starting_or_stopping(bench: Bench) -> None:
    bench.calls.accepting = False
    error = await bench.embed()
    await bench.until_quiet()
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert bench.value("requests_rejected_total", reason="draining") == 1


async def test_the_callers_deadline_is_its_own_outcome(bench: Bench) -> None:
    bench.service.body = wait_for_ever
    error = await bench.embed(timeout=0.2)
    await bench.until_quiet()
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert bench.outcomes() == {"DEADLINE_EXCEEDED": 1}


async def test_a_call_that_nobody_ends_ends_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.calls, "_max_request_seconds", 0.1)
    monkeypatch.setattr(calls_module, "_SLACK_SECONDS", 0.1)
    bench.service.body = wait_for_ever
    error = await bench.embed()
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_caller_that_goes_is_counted_as_cancelled(bench: Bench) -> None:
    bench.service.body = wait_for_ever
    running = bench.stub.Embed(pb.EmbedRequest(model="encoder"))
    await until(lambda: bench.value("requests_in_flight", method="Embed") == 1)
    running.cancel()
    await bench.until_quiet()
    assert bench.outcomes() == {"CANCELLED": 1}


async def test_interrupting_gives_every_running_call_a_status(bench: Bench) -> None:
    bench.service.body = wait_for_ever
    running = [asyncio.create_task(bench.embed()) for _ in range(5)]
    await until(lambda: bench.value("requests_in_flight", method="Embed") == 5)
    bench.calls.interrupt()
    errors = await asyncio.gather(*running)
    await bench.until_quiet()
    assert {error.code() for error in errors} == {grpc.StatusCode.UNAVAILABLE}
    assert bench.outcomes() == {"UNAVAILABLE": 5}


async def test_a_stream_that_nobody_reads_is_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_module, "UNREAD_SECONDS", 0.2)
    monkeypatch.setattr(context_module, "_STATUS_SECONDS", 0.2)
    stream = bench.stub.EmbedStream()
    await until(lambda: bool(bench.outcomes()))
    await bench.until_quiet()
    assert bench.outcomes() == {"ABORTED": 1}
    # Nor does its status, which nobody reads either, keep anything here.
    await asyncio.wait_for(bench.service.stream_ended.wait(), 3)
    stream.cancel()


async def test_an_endless_request_id_is_refused_and_cut_in_the_log(bench: Bench) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="request_id has 100000 characters"):
        await bench.stub.Embed(pb.EmbedRequest(model="encoder", request_id="x" * 100_000))
    [line] = bench.logged.entries
    assert len(line["id"]) == 256
