"""Spans of requests, as a collector gets them from a real server."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import grpc
import pytest

from tests.artefacts import decoder_artefact, encoder_artefact
from tests.contract.collector import Collector, Spans, running_collector, values
from tests.contract.stubs import Stubs, embed_request, error_of, generate_request
from tests.e2e.server_process import ServerProcess, running_server, starting_server

MODELS = [encoder_artefact, decoder_artefact]
EMBED = "formerd.v1.EmbeddingService/Embed"
GENERATE = "formerd.v1.GenerationService/Generate"
STREAM = "formerd.v1.GenerationService/GenerateStream"
OK, ERROR = "OK", 2


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with running_collector() as collector:
        yield collector


@pytest.fixture(scope="module")
def traced(collector: Collector) -> Iterator[ServerProcess]:
    flags = ("--trace-endpoint", collector.address, "--log-text", "--threads", "1")
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as environment:  # of this server alone
            environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
            environment.setenv("OTEL_SERVICE_NAME", "ours")
            environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
            server = stack.enter_context(running_server([make() for make in MODELS], *flags))
        yield server


@pytest.fixture
async def stubs(traced: ServerProcess) -> AsyncIterator[Stubs]:
    async with grpc.aio.insecure_channel(traced.target) as channel:
        yield Stubs(channel)


class Caller:
    """Who calls within a trace of their own: its id, their span, and the metadata that says so."""

    def __init__(self, *, sampled: bool = True) -> None:
        self.trace, self.span = secrets.token_hex(16), secrets.token_hex(8)
        self.metadata = (("traceparent", f"00-{self.trace}-{self.span}-0{int(sampled)}"),)


async def trace_of(collector: Collector, caller: Caller, *names: str) -> Spans:
    """The spans of the caller's trace, once those of these names are there."""
    return await asyncio.to_thread(
        collector.trace, caller.trace, complete=lambda spans: set(names) <= set(spans.names)
    )


@pytest.mark.parametrize(
    ("method", "phases", "counts"),
    [
        (EMBED, ["tokenize", "queue", "encode"], {"inputs": 2}),
        (GENERATE, ["tokenize", "queue", "prefill", "decode"], {"completion_tokens": 8}),
        (STREAM, ["tokenize", "queue", "prefill", "decode"], {"completion_tokens": 8}),
    ],
)
async def test_a_request_is_a_span_and_its_phases_are_its_children(
    method: str, phases: list[str], counts: dict[str, int], collector: Collector, stubs: Stubs
) -> None:
    caller, before = Caller(), time.time_ns()
    if method == EMBED:
        request = embed_request("a secret", "b", request_id="mine")
        await stubs.embedding.Embed(request, metadata=caller.metadata)
    elif method == GENERATE:
        generate = generate_request("a secret", request_id="mine")
        await stubs.generation.Generate(generate, metadata=caller.metadata)
    else:
        generate = generate_request("a secret", request_id="mine")
        stream = stubs.generation.GenerateStream(generate, metadata=caller.metadata)
        assert [event async for event in stream]
    after = time.time_ns()
    spans = await trace_of(collector, caller, method, *phases)
    assert spans.names == [method, *phases]
    root = spans.named(method)
    assert root.parent_span_id.hex() == caller.span
    assert root.kind == root.SPAN_KIND_SERVER
    assert before <= root.start_time_unix_nano < root.end_time_unix_nano <= after + 1_000_000_000
    edge = root.start_time_unix_nano
    for phase in map(spans.named, phases):
        assert phase.parent_span_id == root.span_id
        assert edge <= phase.start_time_unix_nano <= phase.end_time_unix_nano
        edge = phase.end_time_unix_nano
    facts = values(root.attributes)
    assert facts["rpc.method"] == method
    assert facts["rpc.response.status_code"] == OK
    assert facts["formerd.request_id"] == "mine"
    assert facts["formerd.model"] == ("tiny-encoder" if method == EMBED else "tiny-decoder")
    assert {name: facts[f"formerd.{name}"] for name in counts} == counts


async def test_phases_take_the_time_that_the_answer_says(
    collector: Collector, stubs: Stubs
) -> None:
    caller = Caller()
    request = generate_request(tokens=50)
    response = await stubs.generation.Generate(request, metadata=caller.metadata)
    spans = await trace_of(collector, caller, GENERATE, "decode")
    decode = spans.named("decode")
    seconds = (decode.end_time_unix_nano - decode.start_time_unix_nano) / 1e9
    assert seconds == pytest.approx(response.timing.decode_seconds, abs=2e-6)
    assert response.timing.decode_seconds > 0


async def test_a_request_that_fails_says_how(collector: Collector, stubs: Stubs) -> None:
    wrong, late = Caller(), Caller()
    await error_of(stubs.embedding.Embed(embed_request(), metadata=wrong.metadata))
    root = (await trace_of(collector, wrong, EMBED)).named(EMBED)
    assert values(root.attributes)["rpc.response.status_code"] == "INVALID_ARGUMENT"
    assert root.status.code != ERROR, "that is the caller's fault"
    slow = stubs.generation.Generate(
        generate_request(tokens=200, n=4), metadata=late.metadata, timeout=0.02
    )
    assert (await error_of(slow)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    root = (await trace_of(collector, late, GENERATE)).named(GENERATE)
    assert values(root.attributes)["rpc.response.status_code"] == "DEADLINE_EXCEEDED"
    assert root.status.code == ERROR


async def test_each_request_of_a_stream_is_a_span(collector: Collector, stubs: Stubs) -> None:
    caller = Caller()
    stream = stubs.embedding.EmbedStream(metadata=caller.metadata)
    for _ in range(3):
        await stream.write(embed_request("a"))
    await stream.done_writing()
    assert len([response async for response in stream]) == 3
    name = "formerd.v1.EmbeddingService/EmbedStream"
    spans = await asyncio.to_thread(
        collector.trace, caller.trace, complete=lambda spans: len(spans.spans) == 12
    )
    assert sorted(spans.names) == sorted([name, "tokenize", "queue", "encode"] * 3)


async def test_the_log_names_the_trace_and_no_span_has_a_text(
    collector: Collector, stubs: Stubs, traced: ServerProcess
) -> None:
    caller = Caller()
    request = generate_request("what nobody may see", request_id="traced")
    await stubs.generation.Generate(request, metadata=caller.metadata)
    await trace_of(collector, caller, GENERATE, "decode")
    [line] = [line for line in traced.events("request") if line["id"] == "traced"]
    assert line["trace_id"] == caller.trace
    assert "what nobody may see" in str(line), "this server logs texts"
    assert not any(b"what nobody" in sent.SerializeToString() for sent in collector.requests)


async def test_a_caller_decides_whether_its_trace_is_kept(
    collector: Collector, stubs: Stubs
) -> None:
    unwanted, wanted = Caller(sampled=False), Caller()
    await stubs.embedding.Embed(embed_request("a"), metadata=unwanted.metadata)
    await stubs.embedding.Embed(embed_request("a"), metadata=wanted.metadata)
    await trace_of(collector, wanted, EMBED, "encode")
    sent = [sent.SerializeToString() for sent in collector.requests]
    assert not any(bytes.fromhex(unwanted.trace) in each for each in sent)


@pytest.mark.parametrize("parent", ["", "00-nonsense", f"00-{'0' * 32}-{'0' * 16}-01"])
async def test_a_trace_begins_here_where_none_is_given(
    parent: str, stubs: Stubs, traced: ServerProcess, collector: Collector
) -> None:
    metadata = (("traceparent", parent), ("other-bin", b"\xff"))
    response = await stubs.embedding.Embed(embed_request("a"), metadata=metadata)
    [line] = [line for line in traced.events("request") if line["id"] == response.request_id]
    spans = await asyncio.to_thread(
        collector.trace, line["trace_id"], complete=lambda spans: EMBED in spans.names
    )
    assert not spans.named(EMBED).parent_span_id


def test_the_environment_names_the_service(traced: ServerProcess, collector: Collector) -> None:
    while not collector.requests:
        time.sleep(0.02)
    resource = collector.resource()
    assert resource["service.name"] == "ours"
    assert resource["deployment.environment.name"] == "test"
    assert resource["service.version"]


async def test_the_last_spans_go_out_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller()
    with running_collector() as collector:
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        with running_server([encoder_artefact()]) as server:
            async with grpc.aio.insecure_channel(server.target) as channel:
                await Stubs(channel).embedding.Embed(embed_request("a"), metadata=caller.metadata)
            assert not collector.requests
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
        await trace_of(collector, caller, EMBED, "encode")
        assert collector.resource()["service.name"] == "formerd"


async def test_a_collector_that_is_away_holds_nothing_up() -> None:
    endpoint = "http://127.0.0.1:1"
    with running_server([encoder_artefact()], "--trace-endpoint", endpoint) as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            assert (await Stubs(channel).embedding.Embed(embed_request("a"))).embeddings
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert time.monotonic() - began < 30


def test_without_the_extra_it_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT", "no OpenTelemetry")
    with starting_server(
        [encoder_artefact()],
        *("--trace-endpoint", "http://127.0.0.1:4317"),
        module="tests.contract.faulty_server",
    ) as server:
        assert server.wait() == 1
        last = server.log().splitlines()[-1]
        assert "--trace-endpoint http://127.0.0.1:4317: opentelemetry" in last
        assert "install the extra `tracing`" in last
