"""One request of the server's own to every model, over gRPC: what --check is satisfied with."""

from __future__ import annotations

import grpc
from formerd.v1 import embedding_pb2, generation_pb2
from formerd.v1.embedding_pb2_grpc import EmbeddingServiceStub
from formerd.v1.generation_pb2_grpc import GenerationServiceStub
from formerd.v1.tokens_pb2 import TokenIds

from server.models import Model, Models

_TEXT = "A request of the server's own."
_PROMPT_TOKENS = 4  # short enough for any model
_NEW_TOKENS = 2  # one comes from the prompt, one from a step of decoding


class CheckError(Exception):
    """A model that does not answer; one line that names it and says what came instead."""


async def ask_every_model(models: Models, target: str, seconds: float) -> None:
    """Has each model answer one request for each of its tasks.

    Args:
        target: where the server listens, without TLS and tokens.
        seconds: that an answer may take.

    Raises:
        CheckError: one did not answer.
    """
    async with grpc.aio.insecure_channel(target) as channel:
        for model in models:
            try:
                if model.encoder is not None:
                    await _embed(channel, model, seconds)
                if model.generator is not None:
                    await _generate(channel, model, seconds)
            except grpc.aio.AioRpcError as error:
                raise CheckError(
                    f"{model.name}: a request ended with {error.code().name}: {error.details()}"
                ) from None


async def _embed(channel: grpc.aio.Channel, model: Model, seconds: float) -> None:
    request = embedding_pb2.EmbedRequest(
        model=model.name, inputs=[embedding_pb2.EmbedInput(tokens=_tokens(model))]
    )
    response = await EmbeddingServiceStub(channel).Embed(request, timeout=seconds)
    if response.embeddings[0].HasField("error"):
        raise CheckError(f"{model.name}: {response.embeddings[0].error.message}")


async def _generate(channel: grpc.aio.Channel, model: Model, seconds: float) -> None:
    request = generation_pb2.GenerateRequest(
        model=model.name,
        tokens=_tokens(model),
        stopping=generation_pb2.Stopping(max_new_tokens=_NEW_TOKENS, ignore_eos=True),
    )
    await GenerationServiceStub(channel).Generate(request, timeout=seconds)


def _tokens(model: Model) -> TokenIds:
    """Ids, so that a text of which a special vocabulary knows nothing is no failure."""
    return TokenIds(ids=model.tokenizer.encode(_TEXT)[:_PROMPT_TOKENS] or [0])
