"""GenerationService, from outside: whole and streamed answers, and every parameter's limits."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import grpc
import pytest
from formerd.v1 import generation_pb2 as pb

from tests.artefacts import decoder_artefact
from tests.contract.answers import gather_stream, without_times
from tests.contract.stubs import Stubs, error_of, generate_request
from tests.e2e.server_process import running_server

TOP_P = pb.Sampling(temperature=1.5, top_p=0.95, seed=11)


def chat(content: str) -> pb.Chat:
    return pb.Chat(messages=[pb.ChatMessage(role="user", content=content)])


VARIETY = [
    generate_request("the", tokens=20),
    generate_request("and the", tokens=40, sampling=TOP_P),
    generate_request("x", tokens=30, sampling=TOP_P, n=3),
    generate_request([5, 6, 7], tokens=12, output=pb.Output(logprobs=True, top_logprobs=3)),
    pb.GenerateRequest(chat=chat("hello"), stopping=pb.Stopping(max_new_tokens=25)),
    generate_request("y", tokens=1),
    generate_request("the and the", tokens=16, beam=pb.Beam(width=3, length_penalty=0.5), n=2),
    generate_request(
        "the other", beam=pb.Beam(width=2), output=pb.Output(logprobs=True, top_logprobs=1)
    ),
    generate_request(
        list(range(5, 100)), tokens=3, output=pb.Output(prompt_logprobs=True, top_logprobs=2)
    ),
    pb.GenerateRequest(
        prompt="z",
        sampling=pb.Sampling(temperature=2, seed=3),
        stopping=pb.Stopping(max_new_tokens=60, stop=["a", "e", "\n"], include_stop=True),
    ),
]


def seeded(request: pb.GenerateRequest) -> pb.GenerateRequest:
    """The same, with a seed of its own."""
    copy = pb.GenerateRequest()
    copy.CopyFrom(request)
    copy.sampling.seed = 11
    return copy


@pytest.mark.parametrize("request_", VARIETY)
async def test_a_stream_says_what_a_whole_answer_says(
    request_: pb.GenerateRequest, stubs: Stubs
) -> None:
    request_ = seeded(request_)
    whole = await stubs.generation.Generate(request_)
    streamed = await gather_stream(stubs.generation.GenerateStream(request_))
    assert streamed == without_times(whole)
    tokens = sum(len(completion.token_ids) for completion in whole.completions)
    assert whole.usage.completion_tokens == tokens > 0


async def test_company_changes_nothing(stubs: Stubs) -> None:
    """Alone, all at once, whole and streamed: the same answers."""
    requests = [seeded(request) for request in VARIETY]
    alone = [without_times(await stubs.generation.Generate(request)) for request in requests]
    together = await asyncio.gather(
        *(stubs.generation.Generate(request) for request in requests),
        *(gather_stream(stubs.generation.GenerateStream(request)) for request in requests),
    )
    assert [without_times(response) for response in together] == alone * 2


async def test_a_drawn_seed_is_told_and_repeats_the_answer(stubs: Stubs) -> None:
    sampling = pb.Sampling(temperature=2)
    first = await stubs.generation.Generate(generate_request(tokens=30, sampling=sampling))
    other = await stubs.generation.Generate(generate_request(tokens=30, sampling=sampling))
    sampling.seed = first.seed
    again = await stubs.generation.Generate(generate_request(tokens=30, sampling=sampling))
    assert first.completions == again.completions
    assert first.completions != other.completions


async def test_the_chunks_of_a_beam_come_whole_at_the_end(stubs: Stubs) -> None:
    request = generate_request("the", tokens=20, beam=pb.Beam(width=4), n=2)
    events = [event async for event in stubs.generation.GenerateStream(request)]
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds == ["chunk", "finished"] * 2 + ["summary"]
    assert [event.chunk.index for event in events[:4:2]] == [0, 1]
    assert all(len(event.chunk.token_ids) == 20 for event in events[:4:2])
    assert events[-1].summary.usage.completion_tokens == 40


async def test_log_probabilities_of_the_prompt_without_a_new_token(stubs: Stubs) -> None:
    """They are those that a completion of the same tokens has; the first token has none."""
    output = pb.Output(logprobs=True, top_logprobs=3)
    written = await stubs.generation.Generate(generate_request([7], tokens=30, output=output))
    [completion] = written.completions
    prompt = [7, *completion.token_ids]
    output = pb.Output(prompt_logprobs=True, top_logprobs=3)
    read = await stubs.generation.Generate(generate_request(prompt, tokens=0, output=output))
    assert [each.token_id for each in read.prompt_logprobs] == prompt[1:]
    for scored, generated in zip(read.prompt_logprobs, completion.logprobs, strict=True):
        assert scored.token == generated.token
        assert math.isclose(scored.logprob, generated.logprob, abs_tol=1e-4)
        assert [top.token_id for top in scored.top] == [top.token_id for top in generated.top]
    assert read.usage.completion_tokens == 0
    [completion] = read.completions
    assert (completion.text, completion.finish_reason) == ("", pb.FINISH_REASON_LENGTH)


async def test_a_prompt_computed_before_is_reused_within_its_partition(stubs: Stubs) -> None:
    request = generate_request([11] * 200, tokens=5)

    async def generate(token: str) -> pb.GenerateResponse:
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        return await stubs.generation.Generate(request, metadata=metadata)

    responses = [await generate(token) for token in ("", "", "one", "one", "two", "")]
    assert [response.usage.cached_tokens for response in responses] == [0, 192, 0, 192, 0, 192]
    assert all(response.completions == responses[0].completions for response in responses)


async def test_a_completion_ends_where_the_room_ends(stubs: Stubs) -> None:
    """GEN-04: prompts of capacity - 2 to capacity tokens, of a capacity of 512."""
    for length, tokens in ((510, 2), (511, 1)):
        request = generate_request([9] * length, tokens=2**31 - 1)
        [completion] = (await stubs.generation.Generate(request)).completions
        assert len(completion.token_ids) == tokens
        assert completion.finish_reason == pb.FINISH_REASON_LENGTH
    error = await error_of(stubs.generation.Generate(generate_request([9] * 512)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "tokens has 512 tokens; this model takes at most 511"


async def test_texts_of_blanks_and_control_characters_are_served(stubs: Stubs) -> None:
    """TOK-05: only a text without any token is refused."""
    for prompt in (" ", "\u200b", "\0"):
        response = await stubs.generation.Generate(generate_request(prompt))
        assert response.usage.completion_tokens == 8


def refused(field: str, **fields: Any) -> Any:
    return pytest.param(field, generate_request(**fields), id=f"{field} {fields}"[:60])


@pytest.mark.parametrize(
    ("message", "request_"),
    [
        refused("prompt has no tokens", prompt=""),
        refused("tokens has no tokens", prompt=[]),
        refused("tokens.ids[1] is 272", prompt=[1, 272]),
        refused("sampling.temperature is nan", sampling=pb.Sampling(temperature=math.nan)),
        refused("sampling.temperature is inf", sampling=pb.Sampling(temperature=math.inf)),
        refused("sampling.temperature is -1", sampling=pb.Sampling(temperature=-1)),
        refused("sampling.top_p is 0", sampling=pb.Sampling(top_p=0)),
        refused("sampling.top_p is 1.0001", sampling=pb.Sampling(top_p=1.0001)),
        refused("sampling.top_k is -1", sampling=pb.Sampling(top_k=-1)),
        refused("sampling.min_p is 1.5", sampling=pb.Sampling(min_p=1.5)),
        refused("sampling.repetition_penalty is 0", sampling=pb.Sampling(repetition_penalty=0)),
        refused("sampling.repetition_penalty is -1", sampling=pb.Sampling(repetition_penalty=-1)),
        refused("sampling.presence_penalty is 3", sampling=pb.Sampling(presence_penalty=3)),
        refused("sampling.frequency_penalty is -3", sampling=pb.Sampling(frequency_penalty=-3)),
        refused("sampling.logit_bias[0] is 272", sampling=pb.Sampling(logit_bias={272: 1})),
        refused("stopping.max_new_tokens is 0", tokens=0),
        refused(
            "stopping.min_new_tokens is 9",
            stopping=pb.Stopping(max_new_tokens=8, min_new_tokens=9),
        ),
        refused("stopping.stop[0] has 0 bytes", stopping=pb.Stopping(stop=[""])),
        refused("stopping.stop has 1000 strings", stopping=pb.Stopping(stop=["x"] * 1000)),
        refused("stopping.stop[0] has 102400 bytes", stopping=pb.Stopping(stop=["x" * 102400])),
        refused("stopping.stop_token_ids[0] is 272", stopping=pb.Stopping(stop_token_ids=[272])),
        refused("n is 0", n=0),
        refused("n is 5", n=5),
        refused("beam.width is 5", beam=pb.Beam(width=5)),
        refused("beam.length_penalty is set", beam=pb.Beam(length_penalty=1)),
        refused("beam.width is 2, but the request samples", beam=pb.Beam(width=2), sampling=TOP_P),
        refused("n is 3; it must be at most beam.width", beam=pb.Beam(width=2), n=3),
        refused("output.top_logprobs is 2, but", output=pb.Output(top_logprobs=2)),
        refused("output.top_logprobs is 21", output=pb.Output(logprobs=True, top_logprobs=21)),
        refused("decoder_prompt", decoder_prompt=pb.DecoderPrompt(text="x")),
        pytest.param("input is missing", pb.GenerateRequest(), id="no input"),
        pytest.param(
            "chat.messages[0].role is 'bot'",
            pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage(role="bot")])),
            id="unknown role",
        ),
        pytest.param("chat.messages is empty", pb.GenerateRequest(chat=pb.Chat()), id="no message"),
    ],
)
async def test_nonsense_is_refused_by_name_and_disturbs_nobody(
    message: str, request_: pb.GenerateRequest, stubs: Stubs
) -> None:
    """SMP-03: with a stream running beside it, which ends as it does alone."""
    beside = generate_request("the", tokens=60)
    running = asyncio.create_task(gather_stream(stubs.generation.GenerateStream(beside)))
    for call in (stubs.generation.Generate(request_), stubs.generation.GenerateStream(request_)):
        error = await error_of(call)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert str(error.details()).startswith(message)
    undisturbed = await stubs.generation.Generate(beside)
    assert (await running).completions == undisturbed.completions


async def test_a_tiny_temperature_is_greedy(stubs: Stubs) -> None:
    greedy = await stubs.generation.Generate(generate_request(tokens=20))
    for temperature in (0.0, 1e-5, 1e-45):
        sampling = pb.Sampling(temperature=temperature)
        response = await stubs.generation.Generate(generate_request(tokens=20, sampling=sampling))
        assert response.completions == greedy.completions


async def test_a_model_of_another_kind_or_none_is_refused(stubs: Stubs) -> None:
    wrong = await error_of(stubs.generation.Generate(generate_request(model="tiny-encoder")))
    unknown = await error_of(stubs.generation.GenerateStream(generate_request(model="other")))
    assert wrong.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert unknown.code() is grpc.StatusCode.NOT_FOUND


async def test_a_deadline_ends_a_request(stubs: Stubs) -> None:
    slow = generate_request("the", tokens=500, n=4)
    error = await error_of(stubs.generation.Generate(slow, timeout=0.01))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_prefix_cache_of_no_bytes_is_off() -> None:
    request = generate_request([11] * 200, tokens=2)
    flags = ("--slots", "2", "--prefix-cache-bytes", "0")
    with running_server([decoder_artefact()], *flags) as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            for _ in range(2):
                response = await Stubs(channel).generation.Generate(request)
                assert response.usage.cached_tokens == 0
        metrics = server.wait_until_quiet()
        assert metrics.total("formerd_prefix_cache_lookups_total") == 0
        assert metrics.total("formerd_prefix_cache_bytes") == 0
