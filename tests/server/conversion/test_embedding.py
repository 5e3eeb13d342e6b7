"""Requests to embed: what is refused and by which name, what is cut, and the answer's layout."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from formerd.v1 import embedding_pb2 as pb
from formerd.v1.tokens_pb2 import TokenIds

from server.conversion.embedding import (
    EmbedWork,
    max_inputs,
    read_embed_request,
    write_embeddings,
)
from server.errors import InputTooLong, InvalidInput, NonFinite, OverLimit
from server.request import EmbedOutcome, EmbedResult
from server.tokenizer import Tokenizer
from tests.checkpoints import TURN_END_ID, TURN_START_ID, VOCABULARY, byte_tokenizer
from tests.server.manifests import encoder_manifest

BRACKETED = Tokenizer(byte_tokenizer(bracketed=True).to_str().encode())
BARE = Tokenizer(byte_tokenizer().to_str().encode())
MANIFEST = replace(
    encoder_manifest(max_input=8),
    vocabulary_size=VOCABULARY,
    prompts={"query": "q: ", "passage": "p: "},
)
MAX_BYTES = 4 << 20


def text(value: str) -> pb.EmbedInput:
    return pb.EmbedInput(text=value)


def tokens(*ids: int) -> pb.EmbedInput:
    return pb.EmbedInput(tokens=TokenIds(ids=ids))


def read(*inputs: pb.EmbedInput, tokenizer: Tokenizer = BRACKETED, **fields: object) -> EmbedWork:
    message = pb.EmbedRequest(inputs=inputs, **fields)  # type: ignore[arg-type]
    return read_embed_request(message, MANIFEST, 8, tokenizer, MAX_BYTES)


def test_texts_get_the_special_tokens_and_tokens_do_not() -> None:
    work = read(text("xy"), tokens(7, 8))
    plain = BARE.encode("xy")
    assert work.items[0].ids == (TURN_START_ID, *plain, TURN_END_ID)
    assert work.items[1].ids == (7, 8)
    assert work.truncated == (False, False)
    assert work.tokens == len(plain) + 4


def test_an_empty_text_is_its_special_tokens() -> None:
    assert read(text("")).items[0].ids == (TURN_START_ID, TURN_END_ID)


def test_an_input_at_the_limit_is_served_and_one_beyond_is_refused_by_name() -> None:
    assert len(read(text("xyzxyz")).items[0].ids) == 8
    with pytest.raises(InputTooLong, match=r"^inputs\[1\] has 9 tokens; .* at most 8"):
        read(text("x"), text("xyzxyzx"))


def test_truncation_keeps_the_closing_token() -> None:
    work = read(text("x"), text("xyzxyzxyzxyz"), tokens(*range(20)), truncate=True)
    assert [len(item.ids) for item in work.items] == [3, 8, 8]
    assert work.items[1].ids[-1] == TURN_END_ID
    assert work.items[2].ids == tuple(range(8))
    assert work.truncated == (False, True, True)


def test_a_named_prompt_is_put_before_texts_only() -> None:
    work = read(text("x"), tokens(5), prompt_name="query")
    assert work.items[0].ids == tuple(BRACKETED.encode("q: x"))
    assert work.items[1].ids == (5,)


def test_the_checkpoints_default_prompt_holds_where_none_is_named() -> None:
    manifest = replace(MANIFEST, default_prompt="passage")
    message = pb.EmbedRequest(inputs=[text("x")])
    work = read_embed_request(message, manifest, 8, BRACKETED, MAX_BYTES)
    assert work.items[0].ids == tuple(BRACKETED.encode("p: x"))


def test_an_unknown_prompt_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"^prompt_name is 'other'; this model has query, pass"):
        read(text("x"), prompt_name="other")


def test_a_long_name_is_not_repeated_whole() -> None:
    with pytest.raises(InvalidInput) as raised:
        read(text("x"), prompt_name="n" * 100_000)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], r"^inputs is empty"),
        ([text("x"), pb.EmbedInput()], r"^inputs\[1\] has neither text nor tokens"),
        ([text("x"), tokens()], r"^inputs\[1\]\.tokens has no tokens"),
        ([tokens(0, VOCABULARY)], rf"^inputs\[0\]\.tokens\.ids\[1\] is {VOCABULARY};"),
    ],
)
def test_bad_inputs_are_refused_by_name(inputs: list[pb.EmbedInput], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(*inputs)


def test_a_text_without_any_token_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"^inputs\[1\]\.text has no tokens"):
        read(text("ok"), text(""), tokenizer=BARE)


def test_more_inputs_than_a_response_can_answer_are_refused_before_anything_else() -> None:
    most = max_inputs(4, MAX_BYTES)
    with pytest.raises(OverLimit, match=rf"^inputs has {most + 1} entries; at most {most} "):
        read(*[pb.EmbedInput()] * (most + 1))


@pytest.mark.parametrize("dimensions", [1, 4, 384, 4096])
def test_the_most_inputs_fit_the_response_limit_and_waste_little_of_it(dimensions: int) -> None:
    count = max_inputs(dimensions, MAX_BYTES)
    vector = pb.Vector(values=[1.0] * dimensions)
    one = pb.Embedding(vector=vector, token_count=1 << 20, truncated=True)
    response = pb.EmbedResponse(model="m" * 64, embeddings=[one] * count, request_id="i" * 256)
    assert response.ByteSize() <= MAX_BYTES
    if dimensions >= 384:
        assert response.ByteSize() >= 0.98 * MAX_BYTES


def test_each_embedding_is_a_vector_or_its_own_error() -> None:
    work = read(text("x"), tokens(1, 2), text("y"))
    vector = np.arange(4, dtype=np.float32).data
    outcome = EmbedOutcome(
        (EmbedResult(vector), EmbedResult(None, NonFinite("not finite")), EmbedResult(vector))
    )
    first, second, third = write_embeddings(work, outcome)
    assert list(first.vector.values) == list(third.vector.values) == [0, 1, 2, 3]
    assert (second.WhichOneof("result"), second.error.message) == ("error", "not finite")
    assert (first.token_count, second.token_count) == (3, 2)
