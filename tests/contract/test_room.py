"""GEN-04: what never fits is refused at once, what fits is served, and a full slot ends as LENGTH.

On a server whose slots hold 256 positions and whose batches to embed hold 256 tokens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import grpc
import numpy as np
import pytest
from formerd.v1 import generation_pb2 as pb
from formerd.v1 import models_pb2

from tests.artefacts import decoder_artefact, encoder_artefact
from tests.checkpoints import TURN_END, TURN_START, byte_tokenizer
from tests.contract.live_streams import undisturbed
from tests.contract.stubs import Stubs, embed_request, error_of, generate_request
from tests.e2e.server_process import ServerProcess, running_server

CAPACITY = 256
MODEL = "tiny-decoder"
# Tokens of the chat template around one turn of a user.
CHAT_FRAME = len(
    byte_tokenizer().encode(f"{TURN_START}user\n{TURN_END}\n{TURN_START}assistant\n").ids
)
FORMS = ["tokens", "prompt", "chat"]


@pytest.fixture(scope="module")
def narrow() -> Iterator[ServerProcess]:
    flags = ("--max-length", str(CAPACITY), "--slots", "2", "--max-batch-tokens", str(CAPACITY))
    directories = [encoder_artefact(), decoder_artefact()]
    with running_server(directories, *flags, "--threads", "1") as server:
        yield server


@pytest.fixture
async def stubs(narrow: ServerProcess) -> AsyncIterator[Stubs]:
    async with grpc.aio.insecure_channel(narrow.target) as channel:
        yield Stubs(channel)
    narrow.wait_until_quiet()


def prompt_of(tokens: int, form: str, n: int = 1) -> pb.GenerateRequest:
    """A request whose prompt has so many tokens, and that wants all that comes."""
    request = generate_request([9] * tokens, tokens=2**31 - 1, n=n)
    if form == "prompt":
        request.prompt = "x" * tokens
    if form == "chat":
        turn = pb.ChatMessage(role="user", content="x" * (tokens - CHAT_FRAME))
        request.chat.CopyFrom(pb.Chat(messages=[turn]))
    return request


@pytest.mark.parametrize("form", FORMS)
async def test_prompts_around_the_capacity(form: str, narrow: ServerProcess, stubs: Stubs) -> None:
    for tokens in (CAPACITY - 2, CAPACITY - 1):
        response = await stubs.generation.Generate(prompt_of(tokens, form, n=2))
        assert response.usage.prompt_tokens == tokens
        for completion in response.completions:
            assert len(completion.token_ids) == CAPACITY - tokens
            assert completion.finish_reason == pb.FINISH_REASON_LENGTH
    before = narrow.metrics()
    for tokens in (CAPACITY, CAPACITY + 1, 300):
        for call in (stubs.generation.Generate, stubs.generation.GenerateStream):
            error = await error_of(call(prompt_of(tokens, form)))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert error.details() == (
                f"{form} has {tokens} tokens; this model takes at most {CAPACITY - 1}"
            )
    after = narrow.metrics()
    labels = {"model": MODEL, "reason": "too_long"}
    name = "formerd_requests_rejected_total"
    assert after.value(name, labels) - before.value(name, labels) == 6
    for name in ("formerd_engine_steps_total", "formerd_tokens_total"):
        assert after.total(name) == before.total(name), "refused before any compute"


async def test_what_never_fits_keeps_nobody_waiting(stubs: Stubs) -> None:
    """Both slots are busy, and others wait: what is refused does not wait with them."""
    short = generate_request([9] * 5)
    expected = await stubs.generation.Generate(short)
    live = [generate_request([length] * length, tokens=100) for length in range(20, 24)]
    async with undisturbed(stubs, live):
        for _ in range(5):
            error = await error_of(stubs.generation.Generate(prompt_of(300, "tokens")))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            served = await stubs.generation.Generate(short)
            assert served.completions == expected.completions


async def test_the_room_is_announced(stubs: Stubs) -> None:
    answer = await stubs.models.GetModel(models_pb2.GetModelRequest(model=MODEL))
    assert (answer.model.limits.capacity, answer.model.limits.slots) == (CAPACITY, 2)


async def test_a_cache_budget_is_as_good_as_a_length() -> None:
    """What fits follows from the bytes there are: 2 slots of 256 positions of 256 bytes a layer."""
    position = 2 * 2 * 2 * 16 * 4  # layers, keys and values, heads, width, bytes
    budget = str(2 * CAPACITY * position)
    with running_server([decoder_artefact()], "--slots", "2", "--cache-bytes", budget) as server:
        async with grpc.aio.insecure_channel(server.target) as channel:
            stubs = Stubs(channel)
            [completion] = (
                await stubs.generation.Generate(prompt_of(CAPACITY - 1, "tokens"))
            ).completions
            assert completion.finish_reason == pb.FINISH_REASON_LENGTH
            error = await error_of(stubs.generation.Generate(prompt_of(CAPACITY, "tokens")))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            short = await stubs.generation.Generate(generate_request([9] * 5))
            assert short.usage.completion_tokens == 8


async def test_a_text_beyond_the_budget_of_a_batch_is_embedded_alone(stubs: Stubs) -> None:
    request = embed_request("x" * 298, "x" * 3, "x" * 298, "y")  # 300 and 5 tokens, both framed
    together = await stubs.embedding.Embed(request)
    assert [item.token_count for item in together.embeddings] == [300, 5, 300, 3]
    for given, item in zip(request.inputs, together.embeddings, strict=True):
        alone = await stubs.embedding.Embed(embed_request(given.text))
        np.testing.assert_allclose(item.vector.values, alone.embeddings[0].vector.values, atol=1e-6)
