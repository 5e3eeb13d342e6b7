"""Tokenize and Detokenize."""

from __future__ import annotations

import pytest
from formerd.v1 import models_pb2 as pb

from server.conversion.tokens import detokenize, tokenize
from server.errors import InvalidInput, OverLimit
from server.tokenizer import Token, Tokenizer
from tests.checkpoints import TURN_END_ID, TURN_START_ID, VOCABULARY, byte_tokenizer

TOKENIZER = Tokenizer(byte_tokenizer(bracketed=True).to_str().encode())
MAX_BYTES = 4 << 20


def test_tokens_come_with_their_places_in_the_text() -> None:
    response = tokenize(pb.TokenizeRequest(text="xé"), TOKENIZER, MAX_BYTES)
    assert [token.id for token in response.tokens][:: len(response.tokens) - 1] == [
        TURN_START_ID,
        TURN_END_ID,
    ]
    assert (response.tokens[1].start, response.tokens[1].end) == (0, 1)
    assert (response.tokens[-2].start, response.tokens[-2].end) == (1, 2)


def test_special_tokens_can_be_left_out() -> None:
    request = pb.TokenizeRequest(text="x", add_special_tokens=False)
    assert len(tokenize(request, TOKENIZER, MAX_BYTES).tokens) == 1


def test_ids_become_text_with_or_without_special_tokens() -> None:
    ids = TOKENIZER.encode("the end")
    assert detokenize(pb.DetokenizeRequest(ids=ids), TOKENIZER, MAX_BYTES).text == "the end"
    request = pb.DetokenizeRequest(ids=ids, skip_special_tokens=False)
    assert detokenize(request, TOKENIZER, MAX_BYTES).text == "<|im_start|>the end<|im_end|>"


def test_an_unknown_id_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=rf"^ids\[1\] is {VOCABULARY};"):
        detokenize(pb.DetokenizeRequest(ids=[1, VOCABULARY]), TOKENIZER, MAX_BYTES)


class _Untouched(Tokenizer):
    """Fails where it is asked for anything."""

    def encode_with_offsets(self, *_: object, **__: object) -> list[Token]:
        raise AssertionError("the text was tokenised")


def test_what_could_not_be_answered_is_refused_before_it_is_tokenised() -> None:
    tokenizer = _Untouched(byte_tokenizer(bracketed=True).to_str().encode())
    with pytest.raises(OverLimit, match=r"^text: .*--max-response-bytes"):
        tokenize(pb.TokenizeRequest(text="a " * 100_000), tokenizer, MAX_BYTES)


def test_more_than_a_response_holds_is_refused() -> None:
    with pytest.raises(OverLimit, match="--max-response-bytes"):
        tokenize(pb.TokenizeRequest(text="xyz " * 100), TOKENIZER, 1024)
