from __future__ import annotations

import grpc
import pytest

from client.connection import Connection
from client.errors import CallFailed
from client.retry import Retry
from client.sync import Client
from tests.client.scripted_server import EndlessGeneration, Script, fail, serve


def test_an_answer_and_the_token_that_asked_for_it() -> None:
    script = Script()
    with serve(script) as target, Client(Connection(target, token="secret")) as client:
        result = client.embed("four", "seven..", model="m")
    assert result.vectors == [(4.0, 0.5), (7.0, 0.5)]
    assert result.model == "m"
    assert script.metadata["authorization"] == "Bearer secret"


def test_a_failure_carries_code_message_and_delay() -> None:
    script = Script([fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", 1.5)])
    with serve(script) as target, Client(target) as client:
        with pytest.raises(CallFailed, match="the queue is full") as caught:
            client.embed("a")
        assert client.embed("a").items  # the client survives its calls
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.retry_after == 1.5
    assert script.calls == 2


def test_retries_end_with_the_answer() -> None:
    script = Script(
        [
            fail(grpc.StatusCode.UNAVAILABLE),
            fail(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=0.01),
        ]
    )
    with serve(script) as target:
        client = Client(target, retry=Retry(retries=2, first_delay=0.01))
        assert client.embed("a").items
        client.close()
    assert script.calls == 3


def test_a_call_that_takes_too_long_ends() -> None:
    script = Script([lambda context: _wait(context)])
    with serve(script) as target, Client(target, timeout=30.0) as client:
        with pytest.raises(CallFailed) as caught:
            client.embed("a", timeout=0.05)
        assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert caught.value.retry_after is None


def test_what_a_closing_server_cancels_is_unavailable_and_may_be_tried_again() -> None:
    closing = fail(grpc.StatusCode.CANCELLED, "CANCELLED")
    with serve(Script([closing, closing])) as target:
        with Client(target) as client, pytest.raises(CallFailed, match="cancelled the") as caught:
            client.embed("a")
        assert caught.value.code is grpc.StatusCode.UNAVAILABLE
        with Client(target, retry=Retry(retries=1, first_delay=0.01)) as client:
            assert client.embed("a").items


def test_closing_the_client_cancels_its_calls() -> None:
    generation = EndlessGeneration()
    with serve(Script(), generation) as target, Client(target) as client:
        events = client.stream("hello")
        next(events)
        client.close()
        with pytest.raises(CallFailed) as caught:
            list(events)
        assert caught.value.code is grpc.StatusCode.CANCELLED
        assert generation.cancelled.wait(5.0)


def test_closing_a_stream_cancels_the_call() -> None:
    generation = EndlessGeneration()
    with serve(Script(), generation) as target, Client(target) as client:
        events = client.stream("hello")
        texts = [getattr(next(events), "text", None) for _ in range(3)]
        assert texts == ["hello", ".", "."]
        assert not generation.cancelled.is_set()
        events.close()
        assert generation.cancelled.wait(5.0)


def test_a_stream_that_fails_raises_after_what_it_brought() -> None:
    with serve(Script(), EndlessGeneration()) as target, Client(target) as client:
        events = client.stream("refused")
        next(events)
        with pytest.raises(CallFailed, match="nobody read") as caught:
            next(events)
    assert caught.value.code is grpc.StatusCode.ABORTED


def test_bad_options_are_refused_before_the_stream_starts() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(ValueError, match="out of range"):
        client.stream("p", max_new_tokens=-1)


def test_nobody_listens() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(CallFailed) as caught:
        client.models()
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


def _wait(context: grpc.ServicerContext) -> None:
    while context.is_active():
        context.time_remaining()
