"""What gRPC gives a handler to answer with: sending to a reader who may be slow, or gone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import Message
from grpc_status.rpc_status import to_status

from server.conversion.status import rpc_status
from server.errors import ServerError, Unread

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

UNREAD_SECONDS = 60.0
_STATUS_SECONDS = 5.0  # for a reader to take a status; one that does not would keep its handler


async def end(context: Context, error: ServerError) -> NoReturn:
    """Ends an RPC with the status of an error.

    A status waits behind what the reader has not read; nobody has to wait for it here.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_STATUS_SECONDS):
            await context.abort_with_status(to_status(rpc_status(error)))
    raise error


async def write(context: Context, message: Message) -> None:
    """Sends one message of a stream.

    Raises:
        Unread: the reader took none for `UNREAD_SECONDS`.
    """
    try:
        async with asyncio.timeout(UNREAD_SECONDS):
            await context.write(message)
    except TimeoutError:
        raise Unread(f"nothing was read for {UNREAD_SECONDS:g} seconds") from None
