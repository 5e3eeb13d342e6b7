"""SMP-01: a seed gives the same answer whatever else runs, and after the server starts anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
from formerd.v1 import generation_pb2 as pb

from tests.artefacts import decoder_artefact
from tests.contract.answers import without_times
from tests.contract.stubs import Stubs, generate_request
from tests.e2e.server_process import MetricsSnapshot, ServerProcess, running_server

MODEL = "tiny-decoder"
PENALISED = pb.Sampling(
    temperature=1.2, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=-0.5, seed=42
)
SEEDED = [
    generate_request("the", tokens=60, sampling=pb.Sampling(temperature=0.8, seed=42)),
    generate_request("the", tokens=60, sampling=pb.Sampling(temperature=0.8, seed=0)),
    generate_request("the", tokens=60, sampling=pb.Sampling(top_k=20, top_p=0.9, seed=2**64 - 1)),
    generate_request([8] * 70, tokens=40, sampling=pb.Sampling(min_p=0.05, seed=42)),
    generate_request("and the", tokens=40, sampling=PENALISED, n=3),
]
UNSEEDED = generate_request("the", tokens=60, sampling=pb.Sampling(temperature=0.8))


async def ask(stubs: Stubs, requests: Sequence[pb.GenerateRequest]) -> list[pb.GenerateResponse]:
    """The answers to requests that are made together."""
    answers = await asyncio.gather(*(stubs.generation.Generate(each) for each in requests))
    return [without_times(answer) for answer in answers]


async def ask_alone(stubs: Stubs) -> list[pb.GenerateResponse]:
    """The answers to the seeded requests, one after the other."""
    return [answer for each in SEEDED for answer in await ask(stubs, [each])]


def rows_a_step(before: MetricsSnapshot, after: MetricsSnapshot) -> float:
    """How many rows a decode step had, on average."""
    labels = {"model": MODEL, "phase": "decode"}
    names = ("formerd_batch_sequences_sum", "formerd_batch_sequences_count")
    rows, steps = (after.value(name, labels) - before.value(name, labels) for name in names)
    return rows / steps


async def test_a_seed_gives_the_same_alone_in_company_and_in_copies(
    server: ServerProcess, stubs: Stubs
) -> None:
    alone = await ask_alone(stubs)
    assert await ask_alone(stubs) == alone
    assert await ask_alone(stubs) == alone
    assert len({answer.completions[0].text for answer in alone}) == len(SEEDED)

    before = server.wait_until_quiet()
    for request, expected in zip(SEEDED, alone, strict=True):
        company = await ask(stubs, [*[UNSEEDED] * 5, request, *[UNSEEDED] * 5])
        assert company.pop(5) == expected
        assert len({answer.completions[0].text for answer in company}) == 10
        assert len({answer.seed for answer in company}) == 10
        assert await ask(stubs, [request] * 8) == [expected] * 8
    # Else nobody has shared a step, and nothing was tested.
    assert rows_a_step(before, server.wait_until_quiet()) > 2


async def test_a_seed_gives_the_same_from_another_server(stubs: Stubs) -> None:
    alone = await ask_alone(stubs)
    flags = ("--slots", "7", "--max-length", "256", "--threads", "1")
    with running_server([decoder_artefact()], *flags) as other:
        async with grpc.aio.insecure_channel(other.target) as channel:
            assert await ask_alone(Stubs(channel)) == alone
            assert await ask(Stubs(channel), SEEDED) == alone


async def test_completions_of_one_seed_differ_and_the_first_is_the_one_of_n_1(
    stubs: Stubs,
) -> None:
    request = generate_request("the", tokens=30, sampling=pb.Sampling(temperature=1.5, seed=7))
    [single] = (await stubs.generation.Generate(request)).completions
    request.n = 4
    several = (await stubs.generation.Generate(request)).completions
    assert several[0] == single
    assert len({completion.text for completion in several}) == 4
