"""OpenTelemetry: a span for each request and one for each of its phases, sent to a collector.

Needs the extra `tracing`; imported only where tracing is asked for. Spans are made when a request
has ended, from the times that are measured anyway, so that serving does nothing else for them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib.metadata import version

from formerd.v1 import embedding_pb2, generation_pb2, models_pb2
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from server.call import Call
from server.expendable import ExpendableThread

PHASES = ("tokenize", "queue", "encode", "prefill", "decode")  # in the order of their times
_FACTS = frozenset(("inputs", "tokens", "prompt_tokens", "completion_tokens"))  # no texts
# As the conventions for gRPC have it: what is no fault of the server's is no error of its span.
_FAULTS = frozenset(("DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE"))
_FULL_NAMES = {
    method.name: f"{service.full_name}/{method.name}"
    for module in (embedding_pb2, generation_pb2, models_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
_LAST_SECONDS = 3.0  # for the last spans to go out


class Tracing:
    """Makes spans, and sends them in the background; what cannot be sent is dropped.

    The SDK's environment variables hold: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES,
    OTEL_TRACES_SAMPLER, OTEL_PROPAGATORS, OTEL_BSP_*, OTEL_EXPORTER_OTLP_*.

    Args:
        exporter: where spans go.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        release = version("formerd")
        named = Resource({"service.name": "formerd", "service.version": release})
        given = {
            name: value
            for name, value in Resource.create().attributes.items()
            if not str(value).startswith("unknown_service")  # which the SDK says of itself
        }
        # Spans are shut down by `close`, within its time.
        self._provider = TracerProvider(
            resource=named.merge(Resource(given)), shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("formerd", release)

    @classmethod
    def to(cls, endpoint: str) -> Tracing:
        """Sends to a collector that speaks OTLP over gRPC, at http://HOST:PORT or https://."""
        return cls(OTLPSpanExporter(endpoint=endpoint))

    def record(
        self, call: Call, metadata: Iterable[tuple[str, str | bytes]], code: str, seconds: float
    ) -> str:
        """Makes the spans of a request that ends now.

        Args:
            metadata: the caller's, which says what the request is part of (W3C trace context).
            code: the name of its status.
            seconds: that it took.

        Returns:
            The id of its trace, in hex digits.
        """
        end = time.time_ns()
        start = end - _nanoseconds(seconds)
        span = self._tracer.start_span(
            _FULL_NAMES[call.method],
            propagate.extract({key: text for key, text in metadata if isinstance(text, str)}),
            trace.SpanKind.SERVER,
            _attributes(call, code),
            start_time=start,
        )
        if code in _FAULTS:
            span.set_status(trace.StatusCode.ERROR)
        self._record_phases(span, call, start)
        span.end(end)
        return trace.format_trace_id(span.get_span_context().trace_id)

    def close(self) -> None:
        """Sends what is left, in a few seconds or not at all."""
        thread = ExpendableThread(self._provider.shutdown, "tracing")
        thread.start()
        thread.join(_LAST_SECONDS)

    def _record_phases(self, span: trace.Span, call: Call, start: int) -> None:
        """Phases follow each other at once; one that a request did not complete has no span."""
        inside = trace.set_span_in_context(span)
        for phase in PHASES:
            if (seconds := call.facts.get(f"{phase}_seconds")) is not None:
                child = self._tracer.start_span(phase, inside, start_time=start)
                start += _nanoseconds(seconds)
                child.end(start)


def _attributes(call: Call, code: str) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "rpc.system.name": "grpc",
        "rpc.method": _FULL_NAMES[call.method],
        "rpc.response.status_code": code,
        "formerd.request_id": call.request_id,
    }
    if call.found is not None:
        attributes["formerd.model"] = call.found.name
    return attributes | {f"formerd.{fact}": call.facts[fact] for fact in _FACTS & call.facts.keys()}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
