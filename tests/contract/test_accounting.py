"""MET-01: what began equals what ended, to the last call, and nothing is left when all is quiet."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc
import pytest
from formerd.v1 import generation_pb2 as pb

from tests.contract.stubs import Stubs, generate_request
from tests.contract.waiting import measured
from tests.e2e.server_process import MetricsSnapshot, ServerProcess

MODEL, UNKNOWN = "tiny-decoder", "unknown"
Counts = Counter[tuple[str, str, str]]  # by model, method and code

# Requests, and what they are counted as.
MIXED = [
    (generate_request("x", tokens=20), MODEL, "OK"),
    (generate_request("x", tokens=5, n=3), MODEL, "OK"),
    (generate_request("x", sampling=pb.Sampling(top_p=0)), MODEL, "INVALID_ARGUMENT"),
    (generate_request([9] * 512, model=MODEL), MODEL, "INVALID_ARGUMENT"),
    (generate_request("x", model="other"), UNKNOWN, "NOT_FOUND"),
    (generate_request("x", tokens=7, sampling=pb.Sampling(temperature=2)), MODEL, "OK"),
    (generate_request("x", model="tiny-encoder"), "tiny-encoder", "FAILED_PRECONDITION"),
]


def counts(snapshot: MetricsSnapshot) -> Counts:
    """Calls by how they ended, checked against how many began."""
    ended, began = Counts(), Counts()
    for (name, labels), value in snapshot.samples.items():
        of = dict(labels)
        if name == "formerd_requests_total" and value:
            ended[of["model"], of["method"], of["code"]] += int(value)
        if name == "formerd_requests_started_total" and value:
            began[of["model"], of["method"], ""] += int(value)
    sums = Counts()
    for (model, method, _), count in ended.items():
        sums[model, method, ""] += count
    assert sums == began
    return ended


def assert_nothing_left(snapshot: MetricsSnapshot) -> None:
    for name in ("requests_in_flight", "queue_depth", "cache_tokens"):
        assert snapshot.total(f"formerd_{name}") == 0, name
    assert snapshot.total("formerd_slots", {"state": "used"}) == 0


@pytest.mark.parametrize("calls", [150, pytest.param(1000, marks=pytest.mark.full)])
async def test_calls_of_mixed_outcomes_are_counted_as_their_callers_saw_them(
    calls: int, server: ServerProcess, stubs: Stubs
) -> None:
    before = server.wait_until_quiet()
    tally = Counts()
    at_a_time = asyncio.Semaphore(50)

    async def call(index: int) -> None:
        request, model, expected = MIXED[index % len(MIXED)]
        method = "GenerateStream" if index % 3 else "Generate"
        async with at_a_time:
            code = await code_of(getattr(stubs.generation, method)(request))
        assert code == expected
        tally[model, method, code] += 1

    await asyncio.gather(*(call(index) for index in range(calls)))
    after = server.wait_until_quiet()
    assert counts(after) - counts(before) == tally
    assert len({code for _, _, code in tally}) == 4
    assert_nothing_left(after)


async def code_of(call: grpc.aio.Call) -> str:
    """How a call ended, once all of it is read."""
    try:
        if isinstance(call, grpc.aio.UnaryStreamCall):
            async for _ in call:
                pass
        else:
            await call  # type: ignore[misc]
    except grpc.aio.AioRpcError:
        pass
    return (await call.code()).name


async def test_forty_streams_cancelled_at_once_leave_nothing_behind(
    server: ServerProcess, stubs: Stubs
) -> None:
    before = server.wait_until_quiet()
    long = generate_request("x", tokens=500, n=4)  # each needs all slots: they go one by one
    streams = [stubs.generation.GenerateStream(long) for _ in range(40)]
    await streams[0].read()
    name = "formerd_requests_started_total"
    await measured(server, lambda now: now.total(name) == before.total(name) + 40)
    for stream in streams:
        stream.cancel()
    after = server.wait_until_quiet()
    assert_nothing_left(after)
    ended = counts(after) - counts(before)
    assert {method for _, method, _ in ended} == {"GenerateStream"}
    gone = ended[MODEL, "GenerateStream", "CANCELLED"]
    assert gone > 0
    assert set(ended) <= {(MODEL, "GenerateStream", code) for code in ("OK", "CANCELLED")}
    name = "formerd_requests_cancelled_total"
    assert 0 < after.total(name) - before.total(name) <= gone
