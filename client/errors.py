"""What a call can fail with, read from what gRPC raises."""

from __future__ import annotations

from typing import cast

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

_OWN_END = "Channel closed!"  # what gRPC says among other things where the caller closes it
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class CallFailed(Exception):
    """A call, or one item of a call, that the server did not answer.

    Attributes:
        code: the gRPC status.
        message: the server's explanation, written for the caller.
        retry_after: seconds to wait before trying again, where the server said so.
    """

    def __init__(
        self, code: grpc.StatusCode, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(code, message, retry_after)
        self.code = code
        self.message = message
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


def call_failed(error: grpc.RpcError) -> CallFailed:
    """The failure that a channel raised; synchronous and asynchronous errors look the same.

    A call that its caller cancels raises no error, so one that is cancelled was so by the server:
    it closes, has not begun the call, and is unavailable for it as for any that comes later.
    """
    try:
        status = rpc_status.from_call(cast("grpc.Call", error))  # what it reads, errors have too
    except ValueError:  # details that contradict the status: the status counts
        status = None
    retry_after = None if status is None else _retry_after(status)
    code, message = error.code(), error.details() or "no details"
    if code is grpc.StatusCode.CANCELLED and _OWN_END not in message:
        code, message = grpc.StatusCode.UNAVAILABLE, f"the server cancelled the call: {message}"
    return CallFailed(code, message, retry_after)


def item_failed(status: status_pb2.Status) -> CallFailed:
    """The failure of one item of a call that went on."""
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    return CallFailed(code, status.message, _retry_after(status))


def _retry_after(status: status_pb2.Status) -> float | None:
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(retry):
            return float(retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9)
    return None
