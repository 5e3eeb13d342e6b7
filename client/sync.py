"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc
from formerd.v1 import (
    embedding_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
)
from grpc_health.v1 import health_pb2, health_pb2_grpc

from client import wire
from client.connection import DEFAULT_TARGET, Connection, as_connection
from client.errors import call_failed
from client.options import EmbedOptions, GenerateOptions
from client.results import Embeddings, Event, Generation, Model, Token
from client.retry import Retry, Tries

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Client:
    """Calls a formerd server; safe to share between threads.

        with Client("127.0.0.1:50051") as client:
            print(client.generate("The capital of France is", max_new_tokens=8).text)

    Every call raises `client.errors.CallFailed`. `timeout`, in seconds, is for the whole call,
    retries included: the client's own where a call gives none.
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
        self._channel = connection.open()
        self._embedding = embedding_pb2_grpc.EmbeddingServiceStub(self._channel)
        self._generation = generation_pb2_grpc.GenerationServiceStub(self._channel)
        self._models = models_pb2_grpc.ModelServiceStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and with it every call that runs."""
        self._channel.close()

    def embed(
        self,
        *inputs: str | Sequence[int],
        timeout: float | None = None,
        **options: Unpack[EmbedOptions],
    ) -> Embeddings:
        """Embeds texts, or lists of ids: one item each, in order."""
        request = wire.embed_request(inputs, options)
        return wire.to_embeddings(self._call(self._embedding.Embed, request, timeout))

    def generate(
        self,
        prompt: wire.Prompt,
        *,
        timeout: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generation:
        """Generates from a text, a chat (a list of `Message`) or a list of ids."""
        request = wire.generate_request(prompt, options)
        return wire.to_generation(self._call(self._generation.Generate, request, timeout))

    def stream(
        self,
        prompt: wire.Prompt,
        *,
        timeout: float | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generator[Event, None, None]:
        """The same, as it is generated: chunks, each completion's end, and one last summary.

        The call starts with the first `next`, and is cancelled where the iterator is closed early.
        """
        return self._events(wire.generate_request(prompt, options), timeout)

    def models(self, *, timeout: float | None = None) -> tuple[Model, ...]:
        """The models that are loaded."""
        response = self._call(self._models.ListModels, models_pb2.ListModelsRequest(), timeout)
        return tuple(wire.to_model(model) for model in response.models)

    def model(self, name: str, *, timeout: float | None = None) -> Model:
        """The model of that name."""
        request = models_pb2.GetModelRequest(model=name)
        return wire.to_model(self._call(self._models.GetModel, request, timeout).model)

    def tokenize(
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
        return wire.to_tokens(self._call(self._models.Tokenize, request, timeout))

    def detokenize(
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
        return self._call(self._models.Detokenize, request, timeout).text

    def health(self, service: str = "", *, timeout: float | None = None) -> str:
        """`SERVING` or `NOT_SERVING`, of the server, a service or a model (`formerd.v1/NAME`)."""
        check = self._health.Check  # type: ignore[attr-defined]  # absent from the published types
        request = health_pb2.HealthCheckRequest(service=service)
        response: health_pb2.HealthCheckResponse = self._call(check, request, timeout)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))

    def _call(
        self,
        method: grpc.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        timeout: float | None,
    ) -> _Response:
        tries = Tries(self._retry, self._timeout if timeout is None else timeout)
        while True:
            try:
                return method(request, timeout=tries.remaining(), metadata=self._metadata)
            except grpc.RpcError as error:
                failure = call_failed(error)
            time.sleep(tries.delay_after(failure))

    def _events(
        self, request: generation_pb2.GenerateRequest, timeout: float | None
    ) -> Generator[Event, None, None]:
        timeout = self._timeout if timeout is None else timeout
        call = self._generation.GenerateStream(request, timeout=timeout, metadata=self._metadata)
        try:
            for message in call:
                if (event := wire.to_event(message)) is not None:
                    yield event
        except grpc.RpcError as error:
            raise call_failed(error) from None
        finally:
            call.cancel()  # without effect once the call has ended
