"""An OpenTelemetry collector of our own: it keeps the spans that it is sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_SECONDS = 60  # far more than spans take to come


@dataclass(frozen=True)
class Spans:
    """Spans by their names, those of one trace."""

    spans: tuple[Span, ...]

    def named(self, name: str) -> Span:
        """The one of that name."""
        [span] = [span for span in self.spans if span.name == name]
        return span

    @property
    def names(self) -> list[str]:
        """In the order of their beginnings, the longest first."""
        times = {
            (span.start_time_unix_nano, -span.end_time_unix_nano, span.span_id): span.name
            for span in self.spans
        }
        return [times[key] for key in sorted(times)]


class Collector(TraceServiceServicer):
    """Takes spans of one service after another.

    Attributes:
        requests: everything that came, as it came.
        address: where it listens.
    """

    def __init__(self) -> None:
        self.requests: list[pb.ExportTraceServiceRequest] = []
        self.address = ""

    def Export(  # noqa: N802
        self, request: pb.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> pb.ExportTraceServiceResponse:
        self.requests.append(request)
        return pb.ExportTraceServiceResponse()

    def resource(self) -> dict[str, Any]:
        """What the service says of itself."""
        return values(self.requests[0].resource_spans[0].resource.attributes)

    def trace(self, trace_id: str, *, complete: Callable[[Spans], bool] = bool) -> Spans:
        """The spans of a trace, once they are complete; by default, once there is any."""
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            spans = Spans(tuple(span for span in self._spans() if span.trace_id.hex() == trace_id))
            if spans.spans and complete(spans):
                return spans
            time.sleep(0.02)
        raise AssertionError(f"of trace {trace_id} there came {spans.names}")

    def _spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


def values(attributes: Any) -> dict[str, Any]:
    """The values of attributes by their names."""
    return {pair.key: _value(pair) for pair in attributes}


def _value(pair: KeyValue) -> Any:
    return getattr(pair.value, str(pair.value.WhichOneof("value")))


@contextmanager
def running_collector() -> Iterator[Collector]:
    """A collector on a free port of the loopback."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    collector.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
