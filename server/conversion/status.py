"""From an error to the status that the protocol carries."""

from __future__ import annotations

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from server.errors import ServerError, status_code

_MOST_CHARACTERS = 1024  # a longer message could exceed what a client takes as metadata


def rpc_status(error: ServerError) -> status_pb2.Status:
    """The status with the error's code and message, and RetryInfo where waiting helps."""
    number, _ = status_code(error).value
    status = status_pb2.Status(code=number, message=str(error)[:_MOST_CHARACTERS])
    if error.retry_after_seconds is not None:
        delay = Duration()
        delay.FromNanoseconds(round(error.retry_after_seconds * 1e9))
        detail = Any()
        detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        status.details.append(detail)
    return status
