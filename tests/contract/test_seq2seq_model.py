"""One encoder-decoder, two tasks: what it says of itself, what it counts and what it keeps.

CXL-01 and MET-01 for such models.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from formerd.v1 import embedding_pb2, models_pb2
from formerd.v1 import generation_pb2 as pb
from formerd.v1.tokens_pb2 import TokenIds

from model.config import Pooling, PoolingMode
from model.generate import embed
from tests.checkpoints import byte_tokenizer, target_tokenizer
from tests.contract.seq2seq import (
    CAPACITY,
    MODEL,
    OWN_ID,
    ask,
    begun_with,
    oracle,
    request_for,
    seq2seq_server,
    source,
)
from tests.contract.stubs import Stubs, embed_request, error_of
from tests.contract.waiting import measured
from tests.e2e.server_process import ServerProcess

KNOWN = request_for("the", tokens=20)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with seq2seq_server() as server:
        yield server


async def test_one_artefact_embeds_and_generates_at_once(stubs: Stubs) -> None:
    texts = ["the", "and the other", "x" * 200]
    request = embed_request(*texts, model=MODEL)
    alone = [
        (await stubs.embedding.Embed(embed_request(text, model=MODEL))).embeddings[0]
        for text in texts
    ]
    known = await ask(stubs, KNOWN)
    answers = asyncio.gather(*(ask(stubs, KNOWN) for _ in range(8)))
    vectors = await asyncio.gather(*(stubs.embedding.Embed(request) for _ in range(8)))
    assert await answers == [known] * 8
    for response in vectors:
        for one, other in zip(response.embeddings, alone, strict=True):
            difference = np.subtract(one.vector.values, other.vector.values)
            assert np.linalg.norm(difference) <= 1e-6 * np.linalg.norm(other.vector.values)
            assert one.token_count == other.token_count


async def test_an_embedding_is_the_mean_of_the_encoders_states(stubs: Stubs) -> None:
    ids = torch.tensor([source(30)])
    expected = embed(oracle(), Pooling(PoolingMode.MEAN, normalize=False), ids, torch.tensor([30]))[
        0
    ]
    given = embedding_pb2.EmbedInput(tokens=TokenIds(ids=source(30)))
    response = await stubs.embedding.Embed(embedding_pb2.EmbedRequest(model=MODEL, inputs=[given]))
    np.testing.assert_allclose(response.embeddings[0].vector.values, expected, atol=1e-5)
    own = embedding_pb2.EmbedInput(tokens=TokenIds(ids=[OWN_ID]))
    error = await error_of(
        stubs.embedding.Embed(embedding_pb2.EmbedRequest(model=MODEL, inputs=[own]))
    )
    assert str(error.details()).startswith(f"inputs[0].tokens.ids[0] is {OWN_ID}")


async def test_what_is_counted(server: ServerProcess, stubs: Stubs) -> None:
    request = request_for(source(47), tokens=4, ignore_eos=True, decoder_prompt=begun_with(5, 6, 7))
    before = server.wait_until_quiet()
    for _ in range(2):
        await stubs.generation.Generate(request)
    after = server.wait_until_quiet()

    def grown(name: str, **labels: str) -> float:
        series = f"formerd_{name}", {"model": MODEL, **labels}
        return after.value(*series) - before.value(*series)

    assert grown("tokens_total", kind="prompt") == 2 * (47 + 3)
    assert grown("tokens_total", kind="generated") == 2 * 4
    assert grown("tokens_total", kind="embedded") == 0
    assert grown("batch_tokens_sum", phase="encode") == 47
    # The start, the 3 tokens that are given, and 4 of which the last is not computed with.
    assert grown("engine_steps_total", phase="decode") == 2 * 7
    assert grown("prefix_cache_hits_total") == 1
    assert grown("prefix_cache_reused_tokens_total") == 47


async def test_the_model_is_described(server: ServerProcess, stubs: Stubs) -> None:
    model = (await stubs.models.GetModel(models_pb2.GetModelRequest(model=MODEL))).model
    assert model.kind == models_pb2.MODEL_KIND_ENCODER_DECODER
    assert list(model.task) == [models_pb2.TASK_EMBED, models_pb2.TASK_GENERATE]
    assert (model.dimensions, model.pooling) == (64, "mean")
    assert (model.limits.max_input_tokens, model.limits.capacity) == (512, CAPACITY)
    assert model.limits.slots == 4
    assert model.limits.max_inputs > 0
    assert model.vocabulary_size == target_tokenizer().get_vocab_size()
    [serving] = server.events("serving")
    announced = {each["name"]: each for each in serving["models"]}[MODEL]
    assert (announced["capacity"], announced["source_capacity"]) == (CAPACITY, 512)
    layers, heads_and_halves, fp32 = 2, 2 * 64, 4
    assert announced["cache_bytes"] == 4 * (512 + 512) * layers * heads_and_halves * fp32


async def test_sources_and_targets_have_tokenizers_of_their_own(stubs: Stubs) -> None:
    request = models_pb2.TokenizeRequest(model=MODEL, text="the")
    ids = [token.id for token in (await stubs.models.Tokenize(request)).tokens]
    assert ids == byte_tokenizer(bracketed=True).encode("the").ids
    back = models_pb2.DetokenizeRequest(model=MODEL, ids=[OWN_ID])
    written = (await stubs.models.Detokenize(back)).text
    assert written == target_tokenizer().decode([OWN_ID])


async def test_a_source_encoded_before_is_reused_within_its_partition(stubs: Stubs) -> None:
    request = request_for(source(33), tokens=5)

    async def generate(token: str) -> pb.GenerateResponse:
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        return await stubs.generation.Generate(request, metadata=metadata)

    responses = [await generate(token) for token in ("", "", "one", "one", "")]
    assert [response.usage.cached_tokens for response in responses] == [0, 33, 0, 33, 33]
    assert all(response.completions == responses[0].completions for response in responses)


async def test_a_caller_that_goes_leaves_nothing(server: ServerProcess, stubs: Stubs) -> None:
    """CXL-01: with long targets, while running and while queued."""
    before = server.wait_until_quiet()
    labels = {"model": MODEL, "kind": "generated"}
    long = request_for(source(100), tokens=400, ignore_eos=True, n=4)
    for _ in range(5):
        stream = stubs.generation.GenerateStream(long)
        waiting = stubs.generation.GenerateStream(long)
        for _ in range(5):
            await stream.read()
        waiting.cancel()
        stream.cancel()
    after = await measured(server, lambda now: now.total("formerd_slots", {"state": "used"}) == 0)
    names = ("formerd_tokens_total", labels)
    assert after.value(*names) - before.value(*names) < 5 * 4 * 200
