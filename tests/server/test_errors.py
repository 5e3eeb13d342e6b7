"""Each error has one status, and the ones that will pass say when to try again."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2

from server.conversion.status import rpc_status
from server.errors import (
    STATUS,
    InputTooLong,
    InvalidInput,
    OverLimit,
    QueueFull,
    QueueTokensFull,
    ServerError,
    status_code,
)
from server.metrics import REASONS


def every_error(kind: type[ServerError] = ServerError) -> list[type[ServerError]]:
    return [found for child in kind.__subclasses__() for found in (child, *every_error(child))]


@pytest.mark.parametrize("kind", every_error())
def test_every_error_has_a_status_and_a_known_reason(kind: type[ServerError]) -> None:
    assert status_code(kind("why")) is not grpc.StatusCode.OK
    assert kind.reason is None or kind.reason in REASONS
    assert rpc_status(kind("why")).message == "why"


def test_a_narrower_error_has_the_status_of_the_wider_one() -> None:
    assert InputTooLong not in STATUS
    assert status_code(InputTooLong("")) is status_code(InvalidInput(""))


@pytest.mark.parametrize("kind", [QueueFull, QueueTokensFull])
def test_a_full_queue_says_when_to_try_again(kind: type[ServerError]) -> None:
    [detail] = rpc_status(kind("")).details
    retry = error_details_pb2.RetryInfo()
    assert detail.Unpack(retry)
    assert retry.retry_delay.ToTimedelta().total_seconds() == kind.retry_after_seconds == 1


def test_a_size_limit_does_not_suggest_to_try_again() -> None:
    assert not rpc_status(OverLimit("")).details
