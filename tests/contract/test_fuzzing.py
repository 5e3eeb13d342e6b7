"""Whatever comes over the wire ends with a status of ours, and harms nothing that follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from formerd.v1 import embedding_pb2, generation_pb2, models_pb2
from formerd.v1.embedding_pb2_grpc import EmbeddingServiceStub
from formerd.v1.generation_pb2_grpc import GenerationServiceStub
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from server.errors import STATUS
from tests.contract.random_messages import messages
from tests.contract.stubs import embed_request, generate_request
from tests.e2e.server_process import ServerProcess

METHODS: dict[str, MethodDescriptor] = {
    method.name: method
    for module in (embedding_pb2, generation_pb2, models_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
OTHER_METHODS: list[Any] = [
    *health_pb2.DESCRIPTOR.services_by_name["Health"].methods,
    *reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"].methods,
]
EVERY_METHOD = pytest.mark.parametrize("name", METHODS)
STATUSES = {"OK", *(code.name for code in STATUS.values())} - {"INTERNAL", "UNAUTHENTICATED"}
PATIENCE = 1.0  # seconds for a call: a valid message may well ask for more work
GOOD = {
    "EmbedRequest": embed_request("the cat", truncate=True, request_id="id"),
    "GenerateRequest": generate_request(
        "the cat",
        tokens=3,
        sampling=generation_pb2.Sampling(temperature=1, seed=1, logit_bias={7: 2.0}),
        output=generation_pb2.Output(logprobs=True, top_logprobs=2),
    ),
    "GetModelRequest": models_pb2.GetModelRequest(model="tiny-encoder"),
    "TokenizeRequest": models_pb2.TokenizeRequest(model="tiny-encoder", text="the cat"),
    "DetokenizeRequest": models_pb2.DetokenizeRequest(model="tiny-encoder", ids=[7, 8, 9]),
    "ListModelsRequest": models_pb2.ListModelsRequest(),
}
bounded = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
at_length = settings(bounded, max_examples=1000, derandomize=False)


@st.composite
def damaged(draw: Any, content: bytes) -> bytes:
    """A valid message with some of its bytes cut, replaced or put in."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(start + 4, len(content))))
        content = content[:start] + draw(st.binary(max_size=4)) + content[end:]
    return content


@st.composite
def any_message(draw: Any, method: MethodDescriptor) -> bytes:
    """Fields of any value, alone or within a valid message."""
    message: Message = draw(messages(method.input_type))
    if draw(st.booleans()):
        changes, message = message, type(message)()
        message.CopyFrom(GOOD[method.input_type.name])
        message.MergeFrom(changes)
    return message.SerializeToString()


def raw_bytes(method: MethodDescriptor) -> st.SearchStrategy[bytes]:
    good = GOOD[method.input_type.name].SerializeToString()
    return st.binary(max_size=100) | damaged(good)


@pytest.fixture
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    """A channel to a server that knows its answers, and afterwards still does."""
    with grpc.insecure_channel(server.target) as channel:
        before = known_answers(channel)
        yield channel
        vector, text = known_answers(channel)
    np.testing.assert_allclose(vector, before[0], atol=1e-6)
    assert text == before[1]
    server.wait_until_quiet()
    assert server.process.poll() is None


def known_answers(channel: grpc.Channel) -> tuple[list[float], str]:
    embedded = EmbeddingServiceStub(channel).Embed(embed_request("the cat"))
    generated = GenerationServiceStub(channel).Generate(generate_request("the cat"))
    return list(embedded.embeddings[0].vector.values), generated.completions[0].text


def outcome(channel: grpc.Channel, method: MethodDescriptor, *content: bytes) -> str:
    """Sends bytes as they are, and gives the status that the call ends with."""
    ends = (
        ("stream" if method.client_streaming else "unary"),
        ("stream" if method.server_streaming else "unary"),
    )
    make = getattr(channel, "_".join(ends))
    path = f"/{method.containing_service.full_name}/{method.name}"
    call = make(path, request_serializer=None, response_deserializer=None)
    try:
        result = call(iter(content) if method.client_streaming else content[0], timeout=PATIENCE)
        if method.server_streaming:
            for _ in result:
                pass
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


@EVERY_METHOD
@bounded
@given(data=st.data())
def test_any_bytes(name: str, data: st.DataObject, channel: grpc.Channel) -> None:
    content = data.draw(raw_bytes(METHODS[name]))
    assert outcome(channel, METHODS[name], content) in STATUSES


@EVERY_METHOD
@bounded
@given(data=st.data())
def test_any_message(name: str, data: st.DataObject, channel: grpc.Channel) -> None:
    content = data.draw(any_message(METHODS[name]))
    assert outcome(channel, METHODS[name], content) in STATUSES


@bounded
@given(data=st.data())
def test_any_sequence_of_messages(data: st.DataObject, channel: grpc.Channel) -> None:
    method = METHODS["EmbedStream"]
    content = data.draw(st.lists(raw_bytes(method), max_size=12))
    assert outcome(channel, method, *content) in STATUSES


@pytest.mark.full
@EVERY_METHOD
@at_length
@given(data=st.data())
def test_any_bytes_and_messages_at_length(
    name: str, data: st.DataObject, channel: grpc.Channel
) -> None:
    method = METHODS[name]
    content = data.draw(raw_bytes(method) | any_message(method))
    assert outcome(channel, method, content) in STATUSES


def test_bytes_that_are_no_message_are_invalid(channel: grpc.Channel) -> None:
    """Not UNKNOWN, which is what gRPC itself would say."""
    for method in (*METHODS.values(), *OTHER_METHODS):
        assert outcome(channel, method, b"\xff\xff\xff") == "INVALID_ARGUMENT", method.full_name
