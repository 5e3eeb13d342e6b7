"""A gRPC server in this process that answers what a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from formerd.v1 import embedding_pb2, embedding_pb2_grpc, generation_pb2, generation_pb2_grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

Fail = Callable[[grpc.ServicerContext], None]


@dataclass
class Script(embedding_pb2_grpc.EmbeddingServiceServicer):
    """Each call of `Embed` first meets the next failure, if one is left.

    Attributes:
        failures: what the next calls end with.
        metadata: what the last call brought, without gRPC's own.
        calls: how many calls have come.
    """

    failures: list[Fail] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    calls: int = 0

    def Embed(self, request: embedding_pb2.EmbedRequest, context: Any) -> Any:  # noqa: N802
        self.calls += 1
        self.metadata = {key: str(value) for key, value in context.invocation_metadata()}
        if self.failures:
            self.failures.pop(0)(context)
        vectors = [
            embedding_pb2.Embedding(vector=embedding_pb2.Vector(values=[len(item.text), 0.5]))
            for item in request.inputs
        ]
        return embedding_pb2.EmbedResponse(model=request.model, embeddings=vectors)

    def EmbedStream(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError


class EndlessGeneration(generation_pb2_grpc.GenerationServiceServicer):
    """Streams chunks until the call is cancelled, and tells that it was.

    A prompt `refused` fails after the first chunk; any other starts with one prompt's echo.
    """

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def Generate(self, request: Any, context: Any) -> Any:  # noqa: N802
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "sampling.top_p is 2; at most 1")

    def GenerateStream(  # noqa: N802
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> Iterator[generation_pb2.GenerateEvent]:
        context.add_callback(self.cancelled.set)
        yield _chunk(request.prompt)
        if request.prompt == "refused":
            context.abort(grpc.StatusCode.ABORTED, "nobody read the stream")
        while context.is_active():
            yield _chunk(".")
            self.cancelled.wait(0.01)


def fail(
    code: grpc.StatusCode, message: str = "later", retry_after: float | None = None
) -> Callable[[grpc.ServicerContext], None]:
    """A failure, with `google.rpc.RetryInfo` where `retry_after` (seconds) is given."""
    status = status_pb2.Status(code=code.value[0], message=message)
    if retry_after is not None:
        status.details.append(retry_info(retry_after))

    def end(context: grpc.ServicerContext) -> None:
        context.abort_with_status(rpc_status.to_status(status))

    return end


def retry_info(seconds: float) -> any_pb2.Any:
    """The detail that tells a client when to come back."""
    delay = duration_pb2.Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return detail


def item_error(message: str) -> status_pb2.Status:
    """The status of one item whose output was not finite."""
    return status_pb2.Status(code=code_pb2.INTERNAL, message=message)


@contextmanager
def serve(script: Script, generation: EndlessGeneration | None = None) -> Iterator[str]:
    """Serves on a free port of the loopback; yields the target."""
    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server(script, server)
    if generation is not None:
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(generation, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def _chunk(text: str) -> generation_pb2.GenerateEvent:
    return generation_pb2.GenerateEvent(chunk=generation_pb2.GenerateChunk(text=text))
