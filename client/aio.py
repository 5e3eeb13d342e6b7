"""The asynchronous client: the same calls as `client.sync`, awaited."""

# ruff: noqa: ASYNC109 - a gRPC timeout is more than asyncio's: the server learns the deadline.

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

from formerd.v1 import (
    embedding_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
)
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from client import wire
from client.connection import DEFAULT_TARGET, Connection, as_connection
from client.errors import call_failed
from client.options import EmbedOptions, GenerateOptions
from client.results import Embeddings, Event, Generation, Model, Token
from client.retry import Retry, Tries

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class AsyncClient:
    """Calls a formerd server from one event loop, the one that it was made in.

        async with AsyncClient("127.0.0.1:50051") as client:
            async for event in client.stream("The capital of France is"):
                ...

    Every call raises `client.errors.CallFailed`. `timeout`, in seconds, is for the whole call,
    retries included: the client's own where a call gives none. Cancelling the task that waits for
    a call cancels the call.
    """

    def __init__(
        self,
        target: Connection | str = DEFAULT_TARGET,
        *,
        timeout: float | None = None,
        retry: Retry | None = None,
    ) -> None:
        connection = as_connection(target)
        self._timeout = timeout
        self._retry = retry or Retry()
        self._metadata = connection.metadata
        self._channel = connection.open_async()
        self._embedding = embedding_pb2_grpc.EmbeddingServiceStub(self._channel)
        self._generation = generation_pb2_grpc.GenerationServiceStub(self._channel)
        self._models = models_pb2_grpc.ModelServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection, and with it every call that runs."""
        await self._channel.close()

    async def embed(
        self,
        *inputs: str | Sequence[int],
        timeout: float | None = None,
        **options: Unpack[EmbedOptions],
    ) -> Embeddings:
        """Embeds texts, or lists of ids: one item each, in order."""
        request = wire.embed_request(inputs, options)
        return wire.to_embeddings(await self._call(self._embedding.Embed, request, timeout))

    async def generate(
        self,
        prompt: wire.Prompt,
        *,
        timeout: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generation:
        """Generates from a text, a chat (a list of `Message`) or a list of ids."""
        request = wire.generate_request(prompt, options)
        return wire.to_generation(await self._call(self._generation.Generate, request, timeout))

    def stream(
        self,
        prompt: wire.Prompt,
        *,
        timeout: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> AsyncGenerator[Event, None]:
        """The same, as it is generated: chunks, each completion's end, and one last summary.

        The call starts with the first `anext`, and is cancelled where the iterator is closed
        early; `contextlib.aclosing` closes it at the end of a block.
        """
        return self._events(wire.generate_request(prompt, options), timeout)

    async def models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """The models that are loaded."""
        request = models_pb2.ListModelsRequest()
        response = await self._call(self._models.ListModels, request, timeout)
        return tuple(wire.to_model(model) for model in response.models)

    async def model(self, name: str, *, timeout: float | None = None) -> Model:
        """The model of that name."""
        request = models_pb2.GetModelRequest(model=name)
        return wire.to_model((await self._call(self._models.GetModel, request, timeout)).model)

    async def tokenize(
        self,
        text: str,
        *,
        model: str = "",
        add_special_tokens: bool | None = None,
        timeout: float | None = None,
    ) -> tuple[Token, ...]:
        """The tokens of a text, and where they stand in it."""
        request = models_pb2.TokenizeRequest(
            model=model, text=text, add_special_tokens=add_special_tokens
        )
        return wire.to_tokens(await self._call(self._models.Tokenize, request, timeout))

    async def detokenize(
        self,
        ids: Sequence[int],
        *,
        model: str = "",
        skip_special_tokens: bool | None = None,
        timeout: float | None = None,
    ) -> str:
        """The text of a list of ids."""
        request = models_pb2.DetokenizeRequest(
            model=model, ids=ids, skip_special_tokens=skip_special_tokens
        )
        return (await self._call(self._models.Detokenize, request, timeout)).text

    async def health(self, service: str = "", *, timeout: float | None = None) -> str:
        """`SERVING` or `NOT_SERVING`, of the server, a service or a model (`formerd.v1/NAME`)."""
        check = self._health.Check  # type: ignore[attr-defined]  # absent from the published types
        request = health_pb2.HealthCheckRequest(service=service)
        response: health_pb2.HealthCheckResponse = await self._call(check, request, timeout)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))

    async def _call(
        self,
        method: aio.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        timeout: float | None,
    ) -> _Response:
        tries = Tries(self._retry, self._timeout if timeout is None else timeout)
        while True:
            try:
                return await method(request, timeout=tries.remaining(), metadata=self._metadata)
            except aio.AioRpcError as error:
                failure = call_failed(error)
            await asyncio.sleep(tries.delay_after(failure))

    async def _events(
        self, request: generation_pb2.GenerateRequest, timeout: float | None
    ) -> AsyncGenerator[Event, None]:
        timeout = self._timeout if timeout is None else timeout
        call = self._generation.GenerateStream(request, timeout=timeout, metadata=self._metadata)
        try:
            async for message in call:
                if (event := wire.to_event(message)) is not None:
                    yield event
        except aio.AioRpcError as error:
            raise call_failed(error) from None
        finally:
            call.cancel()  # without effect once the call has ended
