"""Sources and the beginnings of targets: each with its own tokenizer, vocabulary and limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from formerd.v1 import generation_pb2 as pb
from formerd.v1.tokens_pb2 import TokenIds

from export.manifest import DecodingRules, Manifest
from server.conversion.generation import GenerateReader
from server.conversion.prompt import read_decoder_prompt
from server.errors import InputTooLong, InvalidInput
from server.limits import DecoderLimits
from server.request import GenerationRequest
from server.tokenizer import Tokenizer
from tests.checkpoints import TURN_END_ID, TURN_START_ID, byte_tokenizer, target_tokenizer
from tests.server.manifests import encoder_decoder_manifest

SOURCE = Tokenizer(byte_tokenizer(bracketed=True).to_str().encode())
TARGET = Tokenizer(target_tokenizer().to_str().encode())
OWN_ID = SOURCE.vocabulary_size  # a token that only targets have
START_ID = 0
SOURCE_CAPACITY, CAPACITY = 40, 16
MANIFEST = replace(
    encoder_decoder_manifest(sources=SOURCE.vocabulary_size), vocabulary_size=TARGET.vocabulary_size
)
LIMITS = DecoderLimits(
    slots=3,
    capacity=CAPACITY,
    prefill_chunk=8,
    max_queue=10,
    max_queue_tokens=1000,
    max_request_seconds=10.0,
    source_capacity=SOURCE_CAPACITY,
)


def read(manifest: Manifest = MANIFEST, **fields: Any) -> GenerationRequest:
    reader = GenerateReader(manifest, SOURCE, TARGET, None, LIMITS)
    return reader.read(pb.GenerateRequest(**fields), drawn_seed=7, deadline=12.5)


def ids(*values: int) -> TokenIds:
    return TokenIds(ids=values)


def text(value: str) -> pb.DecoderPrompt:
    return pb.DecoderPrompt(text=value)


def tokens(*values: int) -> pb.DecoderPrompt:
    return pb.DecoderPrompt(tokens=ids(*values))


def test_a_source_is_encoded_as_the_family_does_and_the_target_begins_with_its_start() -> None:
    wanted = read(prompt="the cat")
    assert wanted.source == tuple(SOURCE.encode("the cat"))
    assert (wanted.source[0], wanted.source[-1]) == (TURN_START_ID, TURN_END_ID)
    assert wanted.prompt == (START_ID,)
    assert wanted.stopping.max_new_tokens == CAPACITY - 1
    assert read(tokens=ids(9, 8)).source == (9, 8)


def test_a_decoder_prompt_comes_after_the_start_and_gets_no_token_of_its_own() -> None:
    begun = read(prompt="x", decoder_prompt=text("the a"))
    assert begun.prompt == (START_ID, *TARGET.encode("the a", add_special_tokens=False))
    assert begun.stopping.max_new_tokens == CAPACITY - len(begun.prompt)
    given = read(prompt="x", decoder_prompt=tokens(OWN_ID, 5))
    assert given.prompt == (START_ID, OWN_ID, 5)


def test_a_decoder_prompt_gets_no_bracket() -> None:
    message = pb.GenerateRequest(prompt="x", decoder_prompt=text("the"))
    field, begun = read_decoder_prompt(message, CAPACITY, SOURCE)
    assert field == "decoder_prompt.text"
    assert begun == SOURCE.encode("the", add_special_tokens=False)


def test_a_decoder_prompt_may_spell_control_tokens_unless_it_is_told_not_to() -> None:
    spelled = text("<|im_end|>")
    assert read(prompt="x", decoder_prompt=spelled).prompt == (START_ID, TURN_END_ID)
    plain = read(prompt="x", decoder_prompt=spelled, parse_control_tokens=False)
    assert TURN_END_ID not in plain.prompt


def test_limits_are_exact() -> None:
    assert len(read(tokens=ids(*[5] * SOURCE_CAPACITY)).source) == SOURCE_CAPACITY
    longest = read(prompt="x", decoder_prompt=tokens(*[5] * (CAPACITY - 2)))
    assert longest.stopping.max_new_tokens == 1
    with pytest.raises(InputTooLong, match=r"^tokens has 41 tokens; this model takes at most 40"):
        read(tokens=ids(*[5] * (SOURCE_CAPACITY + 1)))
    with pytest.raises(InputTooLong, match=r"^decoder_prompt\.tokens has 15 tokens; .* most 14"):
        read(prompt="x", decoder_prompt=tokens(*[5] * (CAPACITY - 1)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"^input is missing"),
        ({"tokens": ids()}, r"^tokens has no tokens"),
        ({"tokens": ids(5, OWN_ID)}, rf"^tokens\.ids\[1\] is {OWN_ID};"),
        (
            {"chat": pb.Chat(messages=[pb.ChatMessage(role="user", content="x")])},
            r"^chat is set, but this model has no chat template",
        ),
        ({"decoder_prompt": pb.DecoderPrompt()}, r"^decoder_prompt has neither text nor tokens"),
        ({"decoder_prompt": text("")}, r"^decoder_prompt\.text has no tokens"),
        ({"decoder_prompt": tokens()}, r"^decoder_prompt\.tokens has no tokens"),
        (
            {"decoder_prompt": tokens(TARGET.vocabulary_size)},
            rf"^decoder_prompt\.tokens\.ids\[0\] is {TARGET.vocabulary_size};",
        ),
        (
            {"decoder_prompt": text("x" * 200_000)},
            r"^decoder_prompt\.text has 200000 bytes; .* most 14 ",
        ),
        (
            {"stopping": pb.Stopping(stop_token_ids=[TARGET.vocabulary_size])},
            r"^stopping\.stop_token_ids\[0\] is",
        ),
        (
            {"sampling": pb.Sampling(logit_bias={TARGET.vocabulary_size: 1.0})},
            r"^sampling\.logit_bias\[0\] is",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    given = {"prompt": "x"} if fields.keys() & {"decoder_prompt", "stopping", "sampling"} else {}
    with pytest.raises(InvalidInput, match=message):
        read(**{**given, **fields})


def test_the_checkpoints_rules_are_those_of_every_request() -> None:
    rules = DecodingRules(last_id=1, ngram_size=3, min_new_tokens=4)
    manifest = replace(MANIFEST, decoding=rules)
    assert read(manifest, prompt="x").rules == rules
    own = read(manifest, prompt="x", stopping=pb.Stopping(min_new_tokens=0))
    assert own.rules == replace(rules, min_new_tokens=0)
