"""Encoder-decoders from outside: what decoders are held to, and the oracle, of sources.

GEN-01, GEN-04, PAD-06, SMP-01 and STR-03 for such models.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest
import torch
from formerd.v1 import generation_pb2 as pb
from formerd.v1.tokens_pb2 import TokenIds
from hypothesis import given

from client.__main__ import main
from client.sync import Client
from model.beam_search import search_beams
from model.decoding_rules import DecodingRules
from model.generate import Source, generate_greedy, remember
from tests.checkpoints import (
    END_ID,
    MARIAN_SETTINGS,
    PAD_ID,
    target_tokenizer,
)
from tests.contract.answers import gather_stream
from tests.contract.random_messages import messages
from tests.contract.seq2seq import (
    CAPACITY,
    MODEL,
    OTHER,
    OWN_ID,
    SAMPLED,
    ask,
    begun_with,
    called_by,
    oracle,
    request_for,
    runs,
    seq2seq_server,
    source,
)
from tests.contract.stubs import Stubs, error_of
from tests.contract.test_fuzzing import METHODS, STATUSES, bounded, outcome
from tests.e2e.server_process import ServerProcess

RULES = DecodingRules.from_settings(MARIAN_SETTINGS, [END_ID])


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with seq2seq_server() as server:
        yield server


VARIETY = [
    request_for("the", tokens=20),
    request_for("and the other", tokens=40, sampling=SAMPLED, output=pb.Output(logprobs=True)),
    request_for(source(3), tokens=25),
    request_for(source(60), tokens=25, output=pb.Output(logprobs=True, top_logprobs=3)),
    request_for(source(240), tokens=25, decoder_prompt=pb.DecoderPrompt(text="the")),
    request_for("x", tokens=30, sampling=SAMPLED, n=3),
    request_for(source(60), tokens=16, beam=pb.Beam(width=4, length_penalty=0.5), n=2),
    request_for(source(3), tokens=12, beam=pb.Beam(width=2), output=pb.Output(logprobs=True)),
    request_for("y", tokens=1),
    request_for(
        "z",
        tokens=5,
        decoder_prompt=begun_with(OWN_ID, 9, 17),
        output=pb.Output(prompt_logprobs=True, top_logprobs=2),
    ),
    request_for(source(60), model=OTHER, tokens=30, sampling=SAMPLED),
    request_for("the other", model=OTHER, tokens=30),
]


def remembered(ids: Sequence[int]) -> Source:
    return remember(oracle(), torch.tensor([ids]), torch.tensor([len(ids)]))


async def test_company_changes_nothing(server: ServerProcess, stubs: Stubs) -> None:
    """All at once, whole and streamed, and alone: the same answers, log-probabilities too.

    Each time by other callers, whose sources nobody has encoded yet.
    """
    before = server.wait_until_quiet()
    whole = [ask(stubs, request, "whole") for request in VARIETY]
    streamed = [ask_stream(stubs, request, "streamed") for request in reversed(VARIETY)]
    together = await asyncio.gather(*whole, *streamed)
    after = server.wait_until_quiet()
    # Else nobody has shared a step, and nothing was tested.
    steps = runs(after, "decode").since(runs(before, "decode"))
    assert steps.sequences / steps.times > 2
    encoded = runs(after, "encode").since(runs(before, "encode"))
    assert encoded.sequences > encoded.times
    alone = [await ask(stubs, request, "alone") for request in VARIETY]
    assert together == [*alone, *reversed(alone)]
    assert len({answer.completions[0].text for answer in alone}) == len(VARIETY)


async def ask_stream(stubs: Stubs, request: pb.GenerateRequest, caller: str) -> pb.GenerateResponse:
    stream = stubs.generation.GenerateStream(request, metadata=called_by(caller))
    return await gather_stream(stream)


async def test_a_seed_gives_the_same_whatever_else_runs_and_after_a_restart(
    server: ServerProcess, stubs: Stubs
) -> None:
    """SMP-01."""

    def wanted(seed: int | None = None) -> pb.GenerateRequest:
        return request_for(
            source(30),
            tokens=30,
            ignore_eos=True,
            sampling=pb.Sampling(temperature=0.8, seed=seed),
            output=pb.Output(logprobs=True),
        )

    seeded = wanted(seed=42)
    alone = await ask(stubs, seeded)
    assert [await ask(stubs, seeded, caller) for caller in ("", "another")] == [alone] * 2
    before = server.wait_until_quiet()
    company = [*[wanted()] * 5, seeded, *[wanted()] * 5]
    others = await asyncio.gather(*(ask(stubs, each, "in company") for each in company))
    assert others.pop(5) == alone
    assert len({answer.completions[0].text for answer in others}) == 10
    assert len({answer.seed for answer in others}) == 10
    copies = (ask(stubs, seeded, f"copy {number}") for number in range(8))
    assert await asyncio.gather(*copies) == [alone] * 8
    steps = runs(server.wait_until_quiet(), "decode").since(runs(before, "decode"))
    assert steps.sequences / steps.times > 2
    with seq2seq_server() as restarted:
        async with grpc.aio.insecure_channel(restarted.target) as channel:
            assert await ask(Stubs(channel), seeded) == alone


@pytest.mark.parametrize("length", [1, 3, 60, 240])
@pytest.mark.parametrize("begun", [[], [OWN_ID, 30, 31]], ids=["", "begun"])
async def test_tokens_are_the_oracles(length: int, begun: list[int], stubs: Stubs) -> None:
    """The rules are followed: the last token ends the text, pad never comes, nor 3 tokens twice."""
    ids, prompt = source(length), [PAD_ID, *begun]
    fields = {"decoder_prompt": begun_with(*begun)} if begun else {}
    [greedy] = (await ask(stubs, request_for(ids, tokens=40, **fields))).completions
    expected = generate_greedy(
        oracle(), prompt, 40, eos_ids=[END_ID], source=remembered(ids), rules=RULES
    )
    assert list(greedy.token_ids) == expected
    assert greedy.finish_reason == pb.FINISH_REASON_EOS
    searched = await ask(stubs, request_for(ids, tokens=8, beam=pb.Beam(width=4), n=4, **fields))
    beams = search_beams(
        oracle(), prompt, 8, width=4, eos_ids=[END_ID], source=remembered(ids), rules=RULES
    )
    assert [list(each.token_ids) for each in searched.completions] == [
        list(beam.tokens) for beam in beams
    ]


async def test_a_target_goes_on_as_it_was_begun(stubs: Stubs) -> None:
    """What begins as the model would have is continued, and scored, as it would have been."""
    output = pb.Output(logprobs=True, top_logprobs=3)
    [whole] = (await ask(stubs, request_for(source(20), tokens=16, output=output))).completions
    begun = begun_with(*whole.token_ids[:6])
    output = pb.Output(logprobs=True, prompt_logprobs=True, top_logprobs=3)
    rest = await ask(stubs, request_for(source(20), tokens=10, decoder_prompt=begun, output=output))
    assert rest.prompt_logprobs == whole.logprobs[:6]
    assert rest.completions[0].token_ids == whole.token_ids[6:]
    assert rest.completions[0].logprobs == whole.logprobs[6:]
    assert rest.usage.prompt_tokens == 20 + 6
    only = pb.Output(prompt_logprobs=True, top_logprobs=3)
    scored = await ask(stubs, request_for(source(20), tokens=0, decoder_prompt=begun, output=only))
    assert scored.prompt_logprobs == whole.logprobs[:6]
    assert scored.usage.completion_tokens == 0


async def test_a_decoder_prompt_is_a_text_or_its_ids(stubs: Stubs) -> None:
    text = "the other and 🙂"
    ids = target_tokenizer().encode(text, add_special_tokens=False).ids
    of_ids = await begin_with(stubs, tokens=TokenIds(ids=ids))
    assert of_ids[1] == ids
    assert of_ids == await begin_with(stubs, text=text)


async def begin_with(stubs: Stubs, **begun: Any) -> tuple[pb.GenerateResponse, list[int]]:
    """An answer, and the tokens of the target that its beginning was read as."""
    output = pb.Output(prompt_logprobs=True)
    request = request_for("x", decoder_prompt=pb.DecoderPrompt(**begun), output=output)
    answer = await ask(stubs, request)
    return answer, [each.token_id for each in answer.prompt_logprobs]


def test_clients_begin_targets(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    text = "the other"
    ids = target_tokenizer().encode(text, add_special_tokens=False).ids
    with Client(server.target) as client:
        wanted = client.generate("x", model=MODEL, max_new_tokens=9, decoder_prompt=ids)
    command = ["generate", "x", "--model", MODEL, "--max-new-tokens", "9", "--decoder-prompt", text]
    assert main(["--target", server.target, "--json", *command]) == 0
    [completion] = json.loads(capsys.readouterr().out)["completions"]
    assert completion["token_ids"] == list(wanted.completions[0].token_ids)


@bounded
@given(changes=messages(METHODS["Generate"].input_type))
def test_any_message_ends_with_a_status_of_ours(
    changes: pb.GenerateRequest, server: ServerProcess
) -> None:
    request = request_for("the cat", tokens=3, decoder_prompt=begun_with(9))
    request.MergeFrom(changes)
    request.model = MODEL
    with grpc.insecure_channel(server.target) as channel:
        assert outcome(channel, METHODS["Generate"], request.SerializeToString()) in STATUSES


async def test_a_text_ends_before_its_stop_string(stubs: Stubs) -> None:
    [whole] = (await ask(stubs, request_for(source(9), tokens=30))).completions
    stop = whole.text[8:11]
    stopping = pb.Stopping(max_new_tokens=30, stop=[stop])
    request = request_for(source(9), stopping=stopping)
    answer = await ask(stubs, request)
    [completion] = answer.completions
    assert completion.text == whole.text[: whole.text.index(stop)]
    assert completion.stop_sequence == stop
    assert completion.finish_reason == pb.FINISH_REASON_STOP
    assert await gather_stream(stubs.generation.GenerateStream(request)) == answer


def refused(message: str, **fields: Any) -> Any:
    source = fields.pop("source", "the")
    return pytest.param(message, request_for(source, **fields), id=message)


@pytest.mark.parametrize(
    ("message", "request_"),
    [
        refused("prompt has no tokens", source="", model=OTHER),  # which brackets no text
        refused("tokens has no tokens", source=[]),
        refused(f"tokens.ids[1] is {OWN_ID}", source=[5, OWN_ID]),
        refused("tokens has 513 tokens; this model takes at most 512", source=[5] * 513),
        pytest.param(
            "chat is set, but this model has no chat template",
            pb.GenerateRequest(model=MODEL, chat=pb.Chat()),
            id="chat",
        ),
        refused("decoder_prompt has neither", decoder_prompt=pb.DecoderPrompt()),
        refused("decoder_prompt.text has no tokens", decoder_prompt=pb.DecoderPrompt(text="")),
        refused("decoder_prompt.tokens has no tokens", decoder_prompt=begun_with()),
        refused("decoder_prompt.tokens.ids[0] is 281", decoder_prompt=begun_with(281)),
        refused("decoder_prompt.tokens has 511 tokens", decoder_prompt=begun_with(*[5] * 511)),
        refused("beam.width is 5", beam=pb.Beam(width=5)),
        refused("n is 3; it must be at most beam.width", beam=pb.Beam(width=2), n=3),
        refused("beam.width is 2, but", beam=pb.Beam(width=2), sampling=SAMPLED),
        refused("stopping.max_new_tokens is 0", tokens=0),
        refused("stopping.stop_token_ids[0] is 281", stopping=pb.Stopping(stop_token_ids=[281])),
        refused("sampling.logit_bias[0] is 281", sampling=pb.Sampling(logit_bias={281: 1})),
    ],
)
async def test_nonsense_is_refused_by_name_and_disturbs_nobody(
    message: str, request_: pb.GenerateRequest, stubs: Stubs
) -> None:
    beside = request_for("the", tokens=40)
    running = asyncio.create_task(gather_stream(stubs.generation.GenerateStream(beside)))
    for call in (stubs.generation.Generate(request_), stubs.generation.GenerateStream(request_)):
        error = await error_of(call)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert str(error.details()).startswith(message)
    assert (await running).completions == (await ask(stubs, beside)).completions


async def test_the_longest_source_and_target_fit(stubs: Stubs) -> None:
    """GEN-04: a target of capacity - 2 tokens after its start leaves room for one more."""
    request = request_for([5] * CAPACITY, tokens=9, decoder_prompt=begun_with(*[7] * 510))
    [completion] = (await ask(stubs, request)).completions
    assert list(completion.token_ids) == [END_ID]
