"""The gRPC server and its port."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from formerd.v1 import embedding_pb2, generation_pb2, models_pb2
from formerd.v1.embedding_pb2_grpc import add_EmbeddingServiceServicer_to_server
from formerd.v1.generation_pb2_grpc import add_GenerationServiceServicer_to_server
from formerd.v1.models_pb2_grpc import add_ModelServiceServicer_to_server
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection

from server.authentication import Authentication
from server.calls import Calls
from server.health import Health
from server.malformed import MalformedMessages
from server.models import Models
from server.services.embedding import EmbeddingService
from server.services.generation import GenerationService
from server.services.models import ModelService
from server.settings import Address, Settings
from server.token_file import TokenFile
from server.worker import Worker

SERVICES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (embedding_pb2, "EmbeddingService"),
        (generation_pb2, "GenerationService"),
        (models_pb2, "ModelService"),
    )
)
_ALSO_REFLECTED = (
    health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
    reflection.SERVICE_NAME,
)
_MAX_CONCURRENT_STREAMS = 1024  # of one connection
_MAX_METADATA_BYTES = 16_384


class ListenError(Exception):
    """A port that cannot be listened on; the message names the flag and the address."""


def make_grpc_server(
    settings: Settings,
    calls: Calls,
    models: Models,
    health: Health,
    worker: Worker,
    tokens: TokenFile | None = None,
) -> grpc.aio.Server:
    """All services on one server, which does not listen yet.

    Without `tokens`, everybody is served who reaches it.
    """
    authentication = [] if tokens is None else [Authentication(tokens, calls)]
    server = grpc.aio.server(
        interceptors=[*authentication, MalformedMessages(calls)], options=_options(settings)
    )
    limit = settings.max_response_bytes
    add_EmbeddingServiceServicer_to_server(EmbeddingService(calls, worker, limit), server)
    add_GenerationServiceServicer_to_server(GenerationService(calls, worker, limit), server)
    add_ModelServiceServicer_to_server(ModelService(calls, models, worker, limit), server)
    add_HealthServicer_to_server(health.servicer, server)
    reflection.enable_server_reflection((*SERVICES, *_ALSO_REFLECTED), server)
    return server


def bind(
    server: grpc.aio.Server, address: Address, credentials: grpc.ServerCredentials | None = None
) -> Address:
    """Has the server listen, in the clear without credentials.

    Returns:
        The address with the port that it really has.

    Raises:
        ListenError: the port is taken, or the host is not this machine's.
    """
    try:
        if credentials is None:
            port = server.add_insecure_port(str(address))
        else:
            port = server.add_secure_port(str(address), credentials)
    except RuntimeError:
        raise ListenError(
            f"--listen {address}: cannot listen there; is another server running?"
        ) from None
    return Address(address.host, port)


def _options(settings: Settings) -> Sequence[tuple[str, int]]:
    return (
        # Else a second server would bind the port of the first, and take half of its calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_response_bytes),
        # A full queue and everything that runs fit one connection; more wait at the client.
        ("grpc.max_concurrent_streams", _MAX_CONCURRENT_STREAMS),
        # One limit: between two, gRPC would refuse at random.
        ("grpc.max_metadata_size", _MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _MAX_METADATA_BYTES),
        # Clients may ping every 10 seconds, also while nothing else is sent.
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    )
