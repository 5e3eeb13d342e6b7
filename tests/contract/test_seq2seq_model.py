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
    called_by,
    oracle,
    request_for,
    runs,
    seq2seq_server,
    source,
)
from tests.contract.stubs import Stubs, embed_request, error_of
from tests.contract.waiting import measured
from tests.e2e.server_process import MetricsSnapshot, ServerProcess

LONG = request_for(source(100), tokens=400, ignore_eos=True, n=4)  # takes all slots


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with seq2seq_server() as server:
        yield server


async def test_one_artefact_embeds_and_generates_at_once(
    server: ServerProcess, stubs: Stubs
) -> None:
    """Both run the encoder: no source of the generations has been encoded before."""
    texts = ["the", "and the other", "x" * 200]
    request = embed_request(*texts, model=MODEL)
    output = pb.Output(logprobs=True)
    wanted = [request_for(source(length), tokens=6, output=output) for length in range(150, 174)]
    before = server.wait_until_quiet()
    answers = asyncio.gather(*(ask(stubs, each, "at once") for each in wanted))
    vectors = await asyncio.gather(*(stubs.embedding.Embed(request) for _ in range(8)))
    together = await answers
    encoded = runs(server.wait_until_quiet(), "encode").since(runs(before, "encode"))
    assert encoded.sequences == len(wanted) + 8 * len(texts)
    assert together == [await ask(stubs, each, "alone") for each in wanted]
    alone = [
        (await stubs.embedding.Embed(embed_request(text, model=MODEL))).embeddings[0]
        for text in texts
    ]
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

    responses = [
        await stubs.generation.Generate(request, metadata=called_by(caller))
        for caller in ("", "", "one", "one", "")
    ]
    assert [response.usage.cached_tokens for response in responses] == [0, 33, 0, 33, 33]
    assert all(response.completions == responses[0].completions for response in responses)


async def test_a_caller_that_goes_leaves_nothing(server: ServerProcess, stubs: Stubs) -> None:
    """CXL-01: with long targets in all slots."""
    before = server.wait_until_quiet()
    for _ in range(5):
        stream = stubs.generation.GenerateStream(LONG)
        for _ in range(5):
            await stream.read()
        stream.cancel()
    after = server.wait_until_quiet()
    assert cancelled(after, "running") - cancelled(before, "running") == 5
    # Some 3 steps each time; more where this process has to wait for its turn.
    assert generated(after) - generated(before) < 5 * 4 * 25
    assert generated(server.wait_until_quiet()) == generated(after)


async def test_the_source_of_a_caller_that_goes_while_it_waits_is_never_encoded(
    server: ServerProcess, stubs: Stubs
) -> None:
    """CXL-01."""
    await ask(stubs, request_for(source(100), tokens=1))  # which those ahead need not encode
    ahead = [stubs.generation.Generate(LONG) for _ in range(3)]
    before = await measured(server, lambda now: now.total("formerd_queue_depth") == 2)
    waiting = [
        stubs.generation.GenerateStream(request_for(source(length), tokens=400))
        for length in range(200, 205)
    ]
    await measured(server, lambda now: all_but_one_wait(now, len(waiting)))
    for stream in waiting:
        stream.cancel()
    await measured(server, lambda now: cancelled(now, "queued") == cancelled(before, "queued") + 5)
    for call in ahead:
        call.cancel()
    encoded = runs(server.wait_until_quiet(), "encode").since(runs(before, "encode"))
    assert encoded.sequences == 0


def all_but_one_wait(snapshot: MetricsSnapshot, streams: int) -> bool:
    """Whether so many streams are in flight, and every call waits but for the one that runs."""
    in_flight = "formerd_requests_in_flight"
    waiting = snapshot.total("formerd_queue_depth")
    return (
        snapshot.total(in_flight, {"method": "GenerateStream"}) == streams
        and waiting == snapshot.total(in_flight) - 1
    )


def cancelled(snapshot: MetricsSnapshot, stage: str) -> float:
    return snapshot.value("formerd_requests_cancelled_total", {"model": MODEL, "stage": stage})


def generated(snapshot: MetricsSnapshot) -> float:
    return snapshot.value("formerd_tokens_total", {"model": MODEL, "kind": "generated"})
