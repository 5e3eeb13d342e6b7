"""What can go wrong with a call, and the one table from each error to its gRPC status."""

from __future__ import annotations

import grpc


class ServerError(Exception):
    """An outcome other than success; the message is written for the caller.

    Attributes:
        reason: label of `formerd_requests_rejected_total`, or None where it is no rejection.
        retry_after_seconds: when to try again (google.rpc.RetryInfo), or None.
    """

    reason: str | None = None
    retry_after_seconds: float | None = None


class InvalidInput(ServerError):
    """An input or parameter that cannot be served; the message starts with the field's name."""

    reason = "invalid"


class InputTooLong(InvalidInput):
    """An input beyond the model's limit."""

    reason = "too_long"


class UnknownModel(ServerError):
    """No model of that name is loaded."""


class WrongTask(ServerError):
    """The model exists but does not do this."""


class QueueFull(ServerError):
    """As many requests wait as are allowed to."""

    reason = "queue_full"
    retry_after_seconds = 1.0


class QueueTokensFull(QueueFull):
    """As many tokens wait as are allowed to."""

    reason = "queue_tokens"


class OverLimit(ServerError):
    """A request or answer over a size limit, or no memory for it: trying again will not help."""


class DeadlinePassed(ServerError):
    """The caller's deadline or --max-request-seconds passed, in the queue or running."""


class Unread(ServerError):
    """Nobody read the stream for 60 seconds."""


class Draining(ServerError):
    """The server is starting or stopping."""

    reason: str | None = "draining"


class Interrupted(Draining):
    """Accepted, but still running when the grace period ended."""

    reason = None


class Unauthenticated(ServerError):
    """The token is missing or wrong."""

    reason = "unauthenticated"


class NonFinite(ServerError):
    """The model's output for this input is not finite."""

    def __init__(self, message: str = "the model's output is not finite") -> None:
        super().__init__(message)


class StepFailed(ServerError):
    """Computing failed; what happened is in the log, not in the message."""


class Cancelled(ServerError):
    """The caller has gone."""


STATUS: dict[type[ServerError], grpc.StatusCode] = {
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    UnknownModel: grpc.StatusCode.NOT_FOUND,
    WrongTask: grpc.StatusCode.FAILED_PRECONDITION,
    QueueFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    OverLimit: grpc.StatusCode.RESOURCE_EXHAUSTED,
    DeadlinePassed: grpc.StatusCode.DEADLINE_EXCEEDED,
    Unread: grpc.StatusCode.ABORTED,
    Draining: grpc.StatusCode.UNAVAILABLE,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    NonFinite: grpc.StatusCode.INTERNAL,
    StepFailed: grpc.StatusCode.INTERNAL,
    Cancelled: grpc.StatusCode.CANCELLED,
}


def status_code(error: ServerError) -> grpc.StatusCode:
    """The status of an error: its own, or its nearest ancestor's."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
