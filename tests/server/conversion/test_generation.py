"""Requests to generate: every parameter is checked by name, and none is silently left out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from formerd.v1 import generation_pb2 as pb
from formerd.v1.tokens_pb2 import TokenIds

from export.manifest import GenerationDefaults, Manifest
from server.chat import ChatTemplate
from server.conversion.generation import MOST_TOP_LOGPROBS, GenerateReader
from server.errors import InputTooLong, InvalidInput
from server.limits import DecoderLimits
from server.request import Beam, GenerationRequest, Output
from server.tokenizer import Tokenizer
from tests.checkpoints import CHAT_TEMPLATE, TURN_END_ID, TURN_START_ID, VOCABULARY, byte_tokenizer
from tests.server.manifests import decoder_manifest

TOKENIZER = Tokenizer(byte_tokenizer().to_str().encode())
TEMPLATE = ChatTemplate(CHAT_TEMPLATE, {})
MANIFEST = replace(decoder_manifest(), vocabulary_size=VOCABULARY)
CAPACITY = 64
LIMITS = DecoderLimits(
    slots=3,
    capacity=CAPACITY,
    prefill_chunk=16,
    max_queue=10,
    max_queue_tokens=1000,
    max_request_seconds=10.0,
)


def read(
    template: ChatTemplate | None = TEMPLATE, manifest: Manifest = MANIFEST, **fields: Any
) -> GenerationRequest:
    reader = GenerateReader(manifest, TOKENIZER, TOKENIZER, template, LIMITS)
    return reader.read(pb.GenerateRequest(**fields), drawn_seed=7, deadline=12.5)


def chat(*turns: tuple[str, str]) -> pb.Chat:
    return pb.Chat(messages=[pb.ChatMessage(role=role, content=text) for role, text in turns])


def ids(*values: int) -> TokenIds:
    return TokenIds(ids=values)


def test_a_bare_prompt_gets_every_default() -> None:
    request = read(prompt="xyz")
    assert request.prompt == tuple(TOKENIZER.encode("xyz"))
    assert (request.n, request.deadline, request.output) == (1, 12.5, Output())
    assert request.sampling.greedy
    assert request.sampling.seed == 7
    assert request.stopping.max_new_tokens == CAPACITY - len(request.prompt)


def test_tokens_are_used_as_they_are() -> None:
    assert read(tokens=ids(5, 0, 9)).prompt == (5, 0, 9)


def test_a_prompt_may_spell_control_tokens_unless_it_is_told_not_to() -> None:
    assert read(prompt="<|im_end|>").prompt == (TURN_END_ID,)
    assert TURN_END_ID not in read(prompt="<|im_end|>", parse_control_tokens=False).prompt


def test_chat_content_may_not_spell_control_tokens_unless_it_is_told_to() -> None:
    spelled = chat(("user", "a<|im_end|>"))
    safe, parsed = read(chat=spelled), read(chat=spelled, parse_control_tokens=True)
    assert safe.prompt.count(TURN_START_ID) == parsed.prompt.count(TURN_START_ID) == 2
    assert safe.prompt.count(TURN_END_ID) == 1
    assert parsed.prompt.count(TURN_END_ID) == 2


def test_a_prompt_may_fill_the_slot_but_for_one_token() -> None:
    request = read(tokens=ids(*[5] * (CAPACITY - 1)), stopping=pb.Stopping(max_new_tokens=50))
    assert request.stopping.max_new_tokens == 1
    with pytest.raises(InputTooLong, match=r"^tokens has 64 tokens; this model takes at most 63"):
        read(tokens=ids(*[5] * CAPACITY))


def test_everything_that_is_set_arrives() -> None:
    request = read(
        prompt="x",
        n=3,
        sampling=pb.Sampling(temperature=0.5, top_k=3, seed=1),
        stopping=pb.Stopping(max_new_tokens=5, stop=["a"]),
        output=pb.Output(logprobs=True, top_logprobs=MOST_TOP_LOGPROBS),
    )
    assert request.n == 3
    assert (request.sampling.temperature, request.sampling.top_k, request.sampling.seed) == (
        0.5,
        3,
        1,
    )
    assert (request.stopping.max_new_tokens, request.stopping.stop) == (5, ("a",))
    assert request.output == Output(logprobs=True, top_logprobs=MOST_TOP_LOGPROBS)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"^input is missing"),
        ({"prompt": ""}, r"^prompt has no tokens"),
        ({"tokens": ids()}, r"^tokens has no tokens"),
        ({"tokens": ids(0, VOCABULARY)}, rf"^tokens\.ids\[1\] is {VOCABULARY};"),
        ({"chat": chat()}, r"^chat\.messages is empty"),
        ({"chat": chat(("user", "x"), ("bot", "y"))}, r"^chat\.messages\[1\]\.role is 'bot'"),
        ({"prompt": "x", "n": 0}, r"^n is 0; it must be from 1 to 3"),
        ({"prompt": "x", "n": 4}, r"^n is 4;"),
        ({"prompt": "x", "decoder_prompt": pb.DecoderPrompt(text="y")}, r"^decoder_prompt "),
        ({"prompt": "x", "beam": pb.Beam(width=0)}, r"^beam\.width is 0; it must be from 1 to 3"),
        ({"prompt": "x", "beam": pb.Beam(width=4)}, r"^beam\.width is 4;"),
        ({"prompt": "x", "beam": pb.Beam(length_penalty=1)}, r"^beam\.length_penalty is set, but"),
        (
            {"prompt": "x", "beam": pb.Beam(width=2, length_penalty=math.nan)},
            r"^beam\.length_penalty is nan; it must be from -10 to 10",
        ),
        (
            {"prompt": "x", "beam": pb.Beam(width=2), "sampling": pb.Sampling(top_k=3)},
            r"^beam\.width is 2, but the request samples: set sampling\.temperature to 0",
        ),
        ({"prompt": "x", "beam": pb.Beam(width=2), "n": 3}, r"^n is 3; it must be at most beam\."),
        ({"prompt": "x", "output": pb.Output(top_logprobs=2)}, r"^output\.top_logprobs is 2, but"),
        (
            {
                "prompt": "x",
                "output": pb.Output(logprobs=True, top_logprobs=MOST_TOP_LOGPROBS + 1),
            },
            r"^output\.top_logprobs is 21;",
        ),
        ({"prompt": "x", "sampling": pb.Sampling(top_p=0)}, r"^sampling\.top_p is 0;"),
        (
            {"prompt": "x", "stopping": pb.Stopping(max_new_tokens=0)},
            r"^stopping\.max_new_tokens is 0;",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(**fields)


def test_chat_needs_a_template() -> None:
    with pytest.raises(InvalidInput, match=r"^chat is set, but this model has no chat template"):
        read(template=None, chat=chat(("user", "x")))


def test_width_1_is_no_beam() -> None:
    assert read(prompt="x", beam=pb.Beam(width=1)).n == 1


def test_a_beam_is_read_and_one_of_width_1_is_none() -> None:
    assert read(prompt="x", beam=pb.Beam(width=3)).beam == Beam(3, 1.0)
    wanted = read(prompt="x", beam=pb.Beam(width=2, length_penalty=-0.5), n=2)
    assert wanted.beam == Beam(2, -0.5)
    assert (wanted.n, wanted.rows) == (2, 2)
    single = read(prompt="x", beam=pb.Beam(width=1), n=2, sampling=pb.Sampling(temperature=1))
    assert single.beam is None
    assert single.rows == 2


def test_a_beam_has_the_length_penalty_of_the_checkpoint_unless_it_is_given_one() -> None:
    manifest = replace(MANIFEST, generation=GenerationDefaults(length_penalty=2.0))
    assert read(manifest=manifest, prompt="x", beam=pb.Beam(width=3)).beam == Beam(3, 2.0)
    given = pb.Beam(width=3, length_penalty=0)
    assert read(manifest=manifest, prompt="x", beam=given).beam == Beam(3, 0.0)


def test_logprobs_of_the_prompt_need_no_new_tokens() -> None:
    wanted = read(
        prompt="xyz",
        output=pb.Output(prompt_logprobs=True, top_logprobs=3),
        stopping=pb.Stopping(max_new_tokens=0),
        n=2,
    )
    assert wanted.output == Output(top_logprobs=3, prompt_logprobs=True)
    assert wanted.stopping.max_new_tokens == 0
    assert wanted.rows == 1
