"""What is too much is refused in time, and says whether trying again can help."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from formerd.v1 import generation_pb2 as pb
from google.rpc import error_details_pb2
from grpc_status.rpc_status import from_call

from tests.artefacts import encoder_artefact, learned_decoder_artefact
from tests.contract.stubs import Stubs, embed_request, error_of, generate_request
from tests.e2e.server_process import ServerProcess, running_server

LONG = generate_request("x", tokens=1000)  # three of them outlast --max-request-seconds
MAX_RESPONSE_BYTES = 20_000


@pytest.fixture(scope="module")
def narrow() -> Iterator[ServerProcess]:
    flags = {
        "--slots": 1,
        "--max-queue": 2,
        "--max-request-seconds": 0.5,
        "--max-response-bytes": MAX_RESPONSE_BYTES,
        "--max-message-bytes": 5000,
    }
    arguments = [str(part) for flag in flags.items() for part in flag]
    with running_server([encoder_artefact(), learned_decoder_artefact()], *arguments) as server:
        yield server


@pytest.fixture
async def stubs(narrow: ServerProcess) -> AsyncIterator[Stubs]:
    async with grpc.aio.insecure_channel(narrow.target) as channel:
        yield Stubs(channel)
    narrow.wait_until_quiet()


async def test_a_full_queue_says_when_to_try_again_and_the_rest_ends_in_time(
    narrow: ServerProcess, stubs: Stubs
) -> None:
    calls = [stubs.generation.Generate(LONG) for _ in range(6)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    refused = [e for e in errors if e.code() is grpc.StatusCode.RESOURCE_EXHAUSTED]
    late = [e for e in errors if e.code() is grpc.StatusCode.DEADLINE_EXCEEDED]
    assert len(refused) + len(late) == len(errors)
    assert len(refused) >= 3  # one runs and two wait
    assert late
    for error in refused:
        status = from_call(error)  # type: ignore[arg-type]
        assert status is not None
        retry = error_details_pb2.RetryInfo()
        assert status.details[0].Unpack(retry)
        assert retry.retry_delay.seconds == 1
    labels = {"model": "tiny-learned-decoder", "reason": "queue_full"}
    assert narrow.metrics().value("formerd_requests_rejected_total", labels) == len(refused)


async def test_an_answer_that_cannot_fit_is_refused_before_it_is_computed(
    narrow: ServerProcess, stubs: Stubs
) -> None:
    before = narrow.metrics().total("formerd_tokens_total")
    output = pb.Output(logprobs=True, top_logprobs=20)
    error = await error_of(stubs.generation.Generate(generate_request(tokens=50, output=output)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MAX_RESPONSE_BYTES) in str(error.details())
    status = from_call(error)  # type: ignore[arg-type]
    assert status is not None
    assert not status.details  # waiting does not help
    error = await error_of(stubs.embedding.Embed(embed_request(*["x"] * 200)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "inputs has 200 entries; at most 65" in str(error.details())
    assert narrow.metrics().total("formerd_tokens_total") == before


async def test_the_same_answer_can_be_streamed(stubs: Stubs) -> None:
    output = pb.Output(logprobs=True, top_logprobs=20)
    request = generate_request(tokens=50, output=output)
    events = [event async for event in stubs.generation.GenerateStream(request)]
    assert events[-1].summary.usage.completion_tokens == 50


async def test_a_request_that_is_too_large_is_refused(stubs: Stubs) -> None:
    error = await error_of(stubs.generation.Generate(generate_request("x" * 6000)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
