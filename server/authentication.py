"""Calls without a valid bearer token are refused, before anything of them is read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc

from server.caller import bearer_token
from server.calls import Calls
from server.context import Context, end
from server.errors import Unauthenticated
from server.token_file import TokenFile

_HEALTH = "/grpc.health.v1.Health/"

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Authentication(grpc.aio.ServerInterceptor):
    """Asks for a token on every service but health, which a load balancer has none for.

    A method that does not exist asks for one too: who has none learns nothing of what there is.
    """

    def __init__(self, tokens: TokenFile, calls: Calls) -> None:
        self._tokens = tokens
        self._calls = calls

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        method = handler_call_details.method
        if method.startswith(_HEALTH):
            return await continuation(handler_call_details)
        token = bearer_token(handler_call_details.invocation_metadata)
        if token is not None and self._tokens.accepts(token):
            return await continuation(handler_call_details)
        error = Unauthenticated(
            "the token is not valid"
            if token is not None
            else "a token is missing; send it as metadata: authorization: Bearer TOKEN"
        )
        self._calls.refuse(method, error)
        return _refusal(error)


def _refusal(error: Unauthenticated) -> _Handler:
    """Ends any kind of call; one that streams has no message read first."""

    async def refuse(_requests: AsyncIterator[Any], context: Context) -> None:
        await end(context, error)

    return grpc.stream_stream_rpc_method_handler(refuse)
