"""The protocol as generated, for tests that must send what a client library would not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from formerd.v1 import embedding_pb2, generation_pb2
from formerd.v1.embedding_pb2_grpc import EmbeddingServiceStub
from formerd.v1.generation_pb2_grpc import GenerationServiceStub
from formerd.v1.models_pb2_grpc import ModelServiceStub
from formerd.v1.tokens_pb2 import TokenIds
from grpc_health.v1.health_pb2_grpc import HealthStub


class Stubs:
    """A stub of every service on one channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.embedding = EmbeddingServiceStub(channel)
        self.generation = GenerationServiceStub(channel)
        self.models = ModelServiceStub(channel)
        self.health: Any = HealthStub(channel)  # published without the types of its methods


def embed_request(*texts: str, **fields: Any) -> embedding_pb2.EmbedRequest:
    """A request to embed texts."""
    inputs = [embedding_pb2.EmbedInput(text=text) for text in texts]
    return embedding_pb2.EmbedRequest(inputs=inputs, **fields)


def generate_request(
    prompt: str | Sequence[int] = "the", *, tokens: int = 8, ignore_eos: bool = True, **fields: Any
) -> generation_pb2.GenerateRequest:
    """A request to generate exactly so many tokens, unless `ignore_eos` is off."""
    given: dict[str, Any] = (
        {"prompt": prompt} if isinstance(prompt, str) else {"tokens": TokenIds(ids=prompt)}
    )
    stopping = generation_pb2.Stopping(max_new_tokens=tokens, ignore_eos=ignore_eos)
    return generation_pb2.GenerateRequest(**{**given, "stopping": stopping, **fields})


async def error_of(call: Any) -> grpc.aio.AioRpcError:
    """The error that a unary call, or a stream that is read to its end, ends with."""
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the call succeeded")
