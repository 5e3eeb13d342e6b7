"""SMP-03: every number of a request at its limits and beyond them, beside streams that go on."""

from __future__ import annotations

import math
from collections.abc import Iterator

import grpc
import pytest
from formerd.v1 import generation_pb2 as pb
from google.protobuf.descriptor import FieldDescriptor

from tests.checkpoints import VOCABULARY
from tests.contract.live_streams import undisturbed
from tests.contract.stubs import Stubs, error_of, generate_request

# The least and the greatest value of each number, and the values just beyond them.
LEAST_FLOAT, BELOW_ONE, ABOVE_ONE = 1e-45, 0.99999994, 1.0000001
ALLOWED = {
    "temperature": (0.0, LEAST_FLOAT, 1e-5, 100.0),
    "top_k": (0, 1, VOCABULARY, VOCABULARY + 1, 2**31 - 1),
    "top_p": (LEAST_FLOAT, BELOW_ONE, 1.0),
    "min_p": (0.0, LEAST_FLOAT, 1.0),
    "repetition_penalty": (LEAST_FLOAT, 1.0, 10.0),
    "presence_penalty": (-2.0, 0.0, 2.0),
    "frequency_penalty": (-2.0, 0.0, 2.0),
    "seed": (0, 2**64 - 1),
}
REFUSED = {
    "temperature": (-LEAST_FLOAT, -1.0, 100.00001),
    "top_k": (-1, -(2**31)),
    "top_p": (0.0, -LEAST_FLOAT, ABOVE_ONE, 1.0001),
    "min_p": (-LEAST_FLOAT, ABOVE_ONE),
    "repetition_penalty": (0.0, -LEAST_FLOAT, -1.0, 10.00001),
    "presence_penalty": (-2.0001, 2.0001, 3.0),
    "frequency_penalty": (-2.0001, 2.0001, -3.0),
}
NOT_FINITE = (math.nan, math.inf, -math.inf)
FIELDS = pb.Sampling.DESCRIPTOR.fields
FLOATS = [field.name for field in FIELDS if field.type == FieldDescriptor.TYPE_FLOAT]


def sampled(**fields: float) -> pb.GenerateRequest:
    """A request that samples with some fields set."""
    return generate_request(tokens=4, sampling=pb.Sampling(**{"seed": 1, **fields}))  # type: ignore[arg-type]


def stopped(**fields: object) -> pb.GenerateRequest:
    return pb.GenerateRequest(prompt="x", stopping=pb.Stopping(**fields))  # type: ignore[arg-type]


def nonsense() -> Iterator[tuple[str, pb.GenerateRequest]]:
    """Requests that cannot be served, each with the name of the field that is wrong."""
    for name, values in REFUSED.items():
        for value in values:
            yield f"sampling.{name}", sampled(**{name: value})
    for value in NOT_FINITE:
        for name in FLOATS:
            yield f"sampling.{name}", sampled(**{name: value})
        yield (
            "sampling.logit_bias[3]",
            generate_request(sampling=pb.Sampling(logit_bias={3: value})),
        )
        beam = pb.Beam(width=2, length_penalty=value)
        yield "beam.length_penalty", generate_request(beam=beam)
    for token_id in (VOCABULARY, 2**32 - 1):
        bias = pb.Sampling(logit_bias={token_id: 1.0})
        yield "sampling.logit_bias[0]", generate_request(sampling=bias)
        yield "stopping.stop_token_ids[1]", stopped(stop_token_ids=[1, token_id])
        yield "tokens.ids[1]", generate_request([1, token_id])
    for stop in ([""], ["a", ""], ["x" * 257], ["é" * 129], ["x" * 102_400]):
        yield f"stopping.stop[{len(stop) - 1}]", stopped(stop=stop)
    for count in (17, 1000):
        yield "stopping.stop has", stopped(stop=["x"] * count)
    yield "stopping.max_new_tokens", stopped(max_new_tokens=0)
    yield "stopping.min_new_tokens", stopped(max_new_tokens=8, min_new_tokens=9)
    yield "stopping.min_new_tokens", stopped(min_new_tokens=2**32 - 1)
    for value in (0, 5, 2**32 - 1):  # of 4 slots
        yield "n is", generate_request(n=value)
        yield "beam.width", generate_request(beam=pb.Beam(width=value))
    yield "output.top_logprobs", generate_request(output=pb.Output(top_logprobs=2**32 - 1))


def test_every_number_has_its_limits_here() -> None:
    names = {field.name for field in FIELDS}
    assert set(ALLOWED) | {"logit_bias"} == names
    assert set(REFUSED) | {"logit_bias", "seed"} == names
    assert set(FLOATS) == set(ALLOWED) - {"top_k", "seed"}


async def test_nonsense_of_every_kind_is_refused_by_name_and_no_stream_notices(
    stubs: Stubs,
) -> None:
    async with undisturbed(stubs):
        for name, request in nonsense():
            for call in (
                stubs.generation.Generate(request),
                stubs.generation.GenerateStream(request),
            ):
                error = await error_of(call)
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (name, error)
                assert str(error.details()).startswith(name)


async def test_every_number_may_have_its_least_and_its_greatest_value(stubs: Stubs) -> None:
    async with undisturbed(stubs):
        for name, values in ALLOWED.items():
            for value in values:
                [completion] = (
                    await stubs.generation.Generate(sampled(**{name: value}))
                ).completions
                assert len(completion.token_ids) == 4


async def test_a_top_k_beyond_the_vocabulary_is_off(stubs: Stubs) -> None:
    answers = [
        await stubs.generation.Generate(sampled(temperature=2, top_k=top_k))
        for top_k in (0, VOCABULARY, VOCABULARY + 1, 2**31 - 1)
    ]
    assert all(answer.completions == answers[0].completions for answer in answers)


@pytest.mark.parametrize("most", [2**31 - 1, 2**32 - 1])
async def test_more_tokens_than_there_is_room_for_end_as_length(most: int, stubs: Stubs) -> None:
    request = generate_request([9] * 500, tokens=most)
    [completion] = (await stubs.generation.Generate(request)).completions
    assert len(completion.token_ids) == 12
    assert completion.finish_reason == pb.FINISH_REASON_LENGTH
