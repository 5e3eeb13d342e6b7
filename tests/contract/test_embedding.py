"""EmbeddingService, from outside: who shares a batch never shows in an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest
from formerd.v1 import embedding_pb2 as pb
from formerd.v1.tokens_pb2 import TokenIds

from tests.contract.stubs import Stubs, embed_request, error_of
from tests.e2e.server_process import ServerProcess

BAD_REQUESTS = [
    (pb.EmbedRequest(), "inputs is empty"),
    (pb.EmbedRequest(inputs=[pb.EmbedInput()]), "inputs[0] has neither text nor tokens"),
    (embed_request("ok", "x" * 600), "inputs[1] has 602 tokens"),
    (
        pb.EmbedRequest(inputs=[pb.EmbedInput(tokens=TokenIds(ids=[272]))]),
        "inputs[0].tokens.ids[0] is 272",
    ),
    (pb.EmbedRequest(inputs=[pb.EmbedInput(tokens=TokenIds())]), "inputs[0].tokens has no tokens"),
    (embed_request("x", dimensions=0), "dimensions is 0"),
    (embed_request("x", dimensions=65), "dimensions is 65"),
    (embed_request("x", normalize=False), "normalize is false"),
    (embed_request("x", prompt_name="query"), "prompt_name is 'query'"),
    (embed_request("x", request_id="i" * 257), "request_id has 257 characters"),
]


def vectors(response: pb.EmbedResponse) -> Any:
    return np.array([embedding.vector.values for embedding in response.embeddings], np.float32)


async def test_a_text_alone_and_in_company_has_the_same_vector(stubs: Stubs) -> None:
    texts = ["a", "the cat and the dog " * 10, "", "é🙂", "x" * 400]
    together = await stubs.embedding.Embed(embed_request(*texts))
    alone = [await stubs.embedding.Embed(embed_request(text)) for text in texts]
    expected = np.concatenate([vectors(response) for response in alone])
    np.testing.assert_allclose(vectors(together), expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)
    assert together.usage.prompt_tokens == sum(item.token_count for item in together.embeddings)
    assert together.model == "tiny-encoder"


async def test_empty_texts_keep_their_places(stubs: Stubs) -> None:
    response = await stubs.embedding.Embed(embed_request("ok", "", "ok"))
    first, second, third = vectors(response)
    np.testing.assert_allclose(first, third, atol=1e-6)
    assert np.abs(first - second).max() > 1e-3
    assert [item.token_count for item in response.embeddings][1] == 2


async def test_truncating_gives_the_vector_of_the_beginning(stubs: Stubs) -> None:
    request = embed_request("x" * 510, "x" * 600, truncate=True)
    response = await stubs.embedding.Embed(request)
    beginning, cut = vectors(response)
    np.testing.assert_allclose(cut, beginning, atol=1e-6)
    assert [item.truncated for item in response.embeddings] == [False, True]
    assert [item.token_count for item in response.embeddings] == [512, 512]


async def test_fewer_dimensions_are_the_leading_ones_at_unit_length(stubs: Stubs) -> None:
    whole = vectors(await stubs.embedding.Embed(embed_request("the cat")))[0]
    part = vectors(await stubs.embedding.Embed(embed_request("the cat", dimensions=8)))[0]
    np.testing.assert_allclose(part, whole[:8] / np.linalg.norm(whole[:8]), atol=1e-6)


@pytest.mark.parametrize(("request_", "message"), BAD_REQUESTS)
async def test_a_bad_request_is_refused_by_name(
    request_: pb.EmbedRequest, message: str, stubs: Stubs
) -> None:
    error = await error_of(stubs.embedding.Embed(request_))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(error.details()).startswith(message)


async def test_a_model_of_another_kind_or_none_is_refused(stubs: Stubs) -> None:
    wrong = await error_of(stubs.embedding.Embed(embed_request("x", model="tiny-decoder")))
    unknown = await error_of(stubs.embedding.Embed(embed_request("x", model="other")))
    assert wrong.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert unknown.code() is grpc.StatusCode.NOT_FOUND


async def test_more_texts_than_one_response_can_hold_are_refused_with_the_limit(
    stubs: Stubs,
) -> None:
    error = await error_of(stubs.embedding.Embed(embed_request(*["x"] * 20_000)))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "inputs has 20000 entries; at most 15" in str(error.details())


async def test_more_than_a_request_may_hold_is_refused(stubs: Stubs) -> None:
    error = await error_of(stubs.embedding.Embed(embed_request("x" * (5 << 20))))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_one_bad_call_among_eight_harms_no_other(stubs: Stubs, server: ServerProcess) -> None:
    """SCH-02: the bad one in each position; the others share batches."""
    texts = [f"the text of caller {index}" for index in range(8)]
    expected = [vectors(await stubs.embedding.Embed(embed_request(text))) for text in texts]
    before = server.metrics()
    for round_ in range(24):
        bad = round_ % 8
        requests = [embed_request(text) for text in texts]
        requests[bad], message = BAD_REQUESTS[round_ % len(BAD_REQUESTS)]
        answers = await asyncio.gather(
            *(stubs.embedding.Embed(request) for request in requests), return_exceptions=True
        )
        for index, answer in enumerate(answers):
            if index == bad:
                assert isinstance(answer, grpc.aio.AioRpcError)
                assert str(answer.details()).startswith(message)
            else:
                assert isinstance(answer, pb.EmbedResponse)
                np.testing.assert_allclose(vectors(answer), expected[index], atol=1e-6)
    after = server.metrics()
    labels = {"model": "tiny-encoder", "phase": "encode"}
    batches = after.value("formerd_batch_sequences_count", labels) - before.value(
        "formerd_batch_sequences_count", labels
    )
    assert batches <= 24 * 7 / 2  # else nobody has shared a batch, and nothing was tested


async def test_a_stream_answers_in_order_and_goes_on_after_errors(stubs: Stubs) -> None:
    texts = {f"id {index}": f"text {index}" for index in range(20)}
    stream = stubs.embedding.EmbedStream()

    async def send() -> None:
        for index, (request_id, text) in enumerate(texts.items()):
            bad = index % 5 == 2
            model = "other" if bad else ""
            await stream.write(embed_request(text, model=model, request_id=request_id))
        await stream.done_writing()

    sending = asyncio.create_task(send())
    answers = [answer async for answer in stream]
    await sending
    assert [answer.request_id for answer in answers] == list(texts)
    for index, answer in enumerate(answers):
        if index % 5 == 2:
            assert answer.error.code == grpc.StatusCode.NOT_FOUND.value[0]
        else:
            alone = await stubs.embedding.Embed(embed_request(texts[answer.request_id]))
            np.testing.assert_allclose(vectors(answer.response), vectors(alone), atol=1e-6)
