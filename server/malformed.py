"""Calls whose message cannot be parsed end as invalid input, like any other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from server.calls import Calls
from server.context import Context, end
from server.errors import InvalidInput

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class MalformedMessages(grpc.aio.ServerInterceptor):
    """Parses the messages of every method, those of health and reflection too.

    Left to itself, gRPC would answer UNKNOWN, and log a stack for each that is malformed.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        error = InvalidInput("the message is malformed: it is not the method's request")

        async def serve_one(request: Any, context: Context) -> Any:
            if request is not None:
                return await _behaviour(handler)(request, context)
            self._calls.refuse(method, error)
            return await end(context, error)

        async def serve_stream(requests: AsyncIterator[Any], context: Context) -> Any:
            answers = _behaviour(handler)(self._parsed(requests, method, error), context)
            if not isinstance(answers, AsyncIterator):
                return await answers
            try:
                async for answer in answers:
                    await context.write(answer)
            except InvalidInput as malformed:
                await end(context, malformed)

        make = getattr(grpc, f"{_kind(handler)}_rpc_method_handler")
        result: _Handler = make(
            serve_stream if handler.request_streaming else serve_one,
            request_deserializer=_lenient(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )
        return result

    async def _parsed(
        self, requests: AsyncIterator[Any], method: str, error: InvalidInput
    ) -> AsyncIterator[Any]:
        async for request in requests:
            if request is None:
                self._calls.refuse(method, error)
                raise error
            yield request


def _kind(handler: _Handler) -> str:
    names = {True: "stream", False: "unary"}
    return f"{names[handler.request_streaming]}_{names[handler.response_streaming]}"


def _behaviour(handler: _Handler) -> Callable[..., Any]:
    behaviour: Callable[..., Any] = getattr(handler, _kind(handler))
    return behaviour


def _lenient(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """Parses, or gives None."""
    assert parse is not None, "every message here is protobuf"

    def parse_or_none(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return None

    return parse_or_none
