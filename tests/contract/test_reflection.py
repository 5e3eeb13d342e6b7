"""A generic client, which knows nothing but reflection, can find and call everything."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.e2e.server_process import ServerProcess

PACKAGE = "formerd.v1"


def test_reflection_lists_every_service(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.target) as channel:
        assert set(ProtoReflectionDescriptorDatabase(channel).get_services()) == {
            f"{PACKAGE}.EmbeddingService",
            f"{PACKAGE}.GenerationService",
            f"{PACKAGE}.ModelService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }


def test_a_method_can_be_called_with_what_reflection_tells(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.target) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        method = pool.FindServiceByName(f"{PACKAGE}.ModelService").FindMethodByName("ListModels")
        call: Any = channel.unary_unary(
            f"/{PACKAGE}.ModelService/ListModels",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        response = call(GetMessageClass(method.input_type)())
        assert [model.name for model in response.models] == ["tiny-encoder", "tiny-decoder"]
