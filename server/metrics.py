"""What is measured: every series of the server, existing at zero from the start.

Labels come from closed sets, so that a misspelt one is a KeyError in a test, never a new series.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase

from export.manifest import Manifest
from server.errors import STATUS

UNKNOWN_MODEL = "unknown"
METHODS = (
    "Embed",
    "EmbedStream",
    "Generate",
    "GenerateStream",
    "ListModels",
    "GetModel",
    "Tokenize",
    "Detokenize",
)
CODES = ("OK", *sorted({code.name for code in STATUS.values()}))
REASONS = ("queue_full", "queue_tokens", "too_long", "invalid", "draining", "unauthenticated")
PHASES = ("encode", "prefill", "decode")

_SECONDS = tuple(1e-4 * 2**power for power in range(21))  # 100 microseconds to 105 seconds
_SIZES = tuple(float(2**power) for power in range(17))  # 1 to 65 536

_Kind = TypeVar("_Kind", bound=MetricWrapperBase)


class Metrics:
    """All series, on a registry of the caller's; those of the process (memory, time) too."""

    def __init__(self, registry: CollectorRegistry, models: Iterable[str]) -> None:
        ProcessCollector(registry=registry)
        families = _Families(registry)
        self.unknown = CallMetrics(families, UNKNOWN_MODEL)
        self._models = {name: ModelMetrics(families, name) for name in models}

    def model(self, name: str) -> ModelMetrics:
        """The series of a loaded model."""
        return self._models[name]


class CallMetrics:
    """What is counted for every call, also for one that names no loaded model.

    Observed by the calls and services. A series with more labels than the model is a dictionary
    by their values: `requests_started["Embed"]`, `requests["Embed"]["OK"]`.
    """

    def __init__(self, families: _Families, model: str) -> None:
        bound = _Bound(families, model)
        self.requests_started = bound.counters(
            "requests_started", "Calls that have begun.", method=METHODS
        )
        self.requests = bound.counter_table(
            "requests", "Calls that have ended.", method=METHODS, code=CODES
        )
        self.requests_rejected = bound.counters(
            "requests_rejected", "Calls refused on arrival.", reason=REASONS
        )
        self.requests_in_flight = bound.gauges(
            "requests_in_flight", "Calls that have begun and not ended.", method=METHODS
        )
        self.request_duration = bound.durations(
            "request_duration", "From begin to end of calls that succeeded.", method=METHODS
        )
        self.queue_duration = bound.durations(
            "queue_duration", "From acceptance to the start of computing.", method=METHODS
        )


class ModelMetrics(CallMetrics):
    """What is measured for each loaded model.

    Tokenising is observed by the services, everything else of this class by the engines. `phase`
    is one of encode, prefill, decode.
    """

    def __init__(self, families: _Families, model: str) -> None:
        super().__init__(families, model)
        bound = _Bound(families, model)
        self._families = families
        self._model = model
        self.tokens = bound.counters(
            "tokens",
            "Tokens accepted as prompts (cached ones too), generated, or embedded.",
            kind=("prompt", "generated", "embedded"),
        )
        self.requests_cancelled = bound.counters(
            "requests_cancelled",
            "Requests whose caller went.",
            stage=("queued", "running"),
        )
        self.nonfinite_outputs = bound.counter(
            "nonfinite_outputs", "Inputs whose output was not finite."
        )
        self.engine_steps = bound.counters("engine_steps", "Runs of a graph.", phase=PHASES)
        self.prefix_cache_lookups = bound.counter(
            "prefix_cache_lookups", "Prompts looked up in the prefix cache."
        )
        self.prefix_cache_hits = bound.counter(
            "prefix_cache_hits", "Prompts of which the prefix cache knew the beginning."
        )
        self.prefix_cache_reused_tokens = bound.counter(
            "prefix_cache_reused_tokens", "Prompt tokens that were not computed again."
        )
        self.queue_depth = bound.gauge("queue_depth", "Requests that wait.")
        self.slots = bound.gauges("slots", "Cache slots.", state=("used", "free"))
        self.cache_tokens = bound.gauge("cache_tokens", "Positions that the cache holds.")
        self.cache_capacity_tokens = bound.gauge(
            "cache_capacity_tokens", "Positions that the cache has room for."
        )
        self.prefix_cache_bytes = bound.gauge("prefix_cache_bytes", "Size of the prefix cache.")
        self.ready = bound.gauge("ready", "Whether the model serves: 1 or 0.")
        self.tokenize_duration = bound.duration("tokenize_duration", "Tokenising of one request.")
        self.step_duration = bound.durations(
            "step_duration", "One run of a graph, inputs and outputs included.", phase=PHASES
        )
        self.sampling_duration = bound.duration(
            "sampling_duration", "Choosing the next token of every row of a step."
        )
        self.time_to_first_token = bound.duration(
            "time_to_first_token", "From acceptance to the first generated token."
        )
        self.inter_token_latency = bound.duration(
            "inter_token_latency", "Between two tokens of one completion."
        )
        self.batch_sequences = bound.sizes("batch_sequences", "Sequences of a run.", phase=PHASES)
        self.batch_tokens = bound.sizes("batch_tokens", "Tokens of a run.", phase=PHASES)
        self.request_prompt_tokens = bound.size("request_prompt_tokens", "Tokens of a prompt.")
        self.request_generated_tokens = bound.size(
            "request_generated_tokens", "Tokens generated for a request."
        )

    def describe(self, manifest: Manifest) -> None:
        """Publishes what the model is, as the labels of `formerd_model_info`."""
        labels = {
            "kind": manifest.kind,
            "precision": manifest.precision.value,
            "device": manifest.device.value,
            "digest": manifest.digest,
        }
        family = self._families.get(Gauge, "model_info", "What is loaded.", tuple(labels))
        family.labels(model=self._model, **labels).set(1)


class _Families:
    """Each family of series, made when it is first asked for."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._families: dict[str, MetricWrapperBase] = {}

    def get(
        self, kind: type[_Kind], name: str, text: str, labels: tuple[str, ...] = (), **options: Any
    ) -> _Kind:
        if name not in self._families:
            self._families[name] = kind(
                f"formerd_{name}", text, ("model", *labels), registry=self._registry, **options
            )
        return cast("_Kind", self._families[name])


class _Bound:
    """Makes the series of one model. A keyword argument is a label with all its values."""

    def __init__(self, families: _Families, model: str) -> None:
        self._families = families
        self._model = model

    def counter(self, name: str, text: str) -> Counter:
        return self._families.get(Counter, name, text).labels(model=self._model)

    def counters(self, name: str, text: str, **label: tuple[str, ...]) -> dict[str, Counter]:
        return self._each(Counter, name, text, label)

    def counter_table(
        self, name: str, text: str, *, method: tuple[str, ...], code: tuple[str, ...]
    ) -> dict[str, dict[str, Counter]]:
        family = self._families.get(Counter, name, text, ("method", "code"))
        return {
            row: {
                column: family.labels(model=self._model, method=row, code=column) for column in code
            }
            for row in method
        }

    def gauge(self, name: str, text: str) -> Gauge:
        return self._families.get(Gauge, name, text).labels(model=self._model)

    def gauges(self, name: str, text: str, **label: tuple[str, ...]) -> dict[str, Gauge]:
        return self._each(Gauge, name, text, label)

    def duration(self, name: str, text: str) -> Histogram:
        family = self._families.get(Histogram, f"{name}_seconds", text, buckets=_SECONDS)
        return family.labels(model=self._model)

    def durations(self, name: str, text: str, **label: tuple[str, ...]) -> dict[str, Histogram]:
        return self._each(Histogram, f"{name}_seconds", text, label, buckets=_SECONDS)

    def size(self, name: str, text: str) -> Histogram:
        return self._families.get(Histogram, name, text, buckets=_SIZES).labels(model=self._model)

    def sizes(self, name: str, text: str, **label: tuple[str, ...]) -> dict[str, Histogram]:
        return self._each(Histogram, name, text, label, buckets=_SIZES)

    def _each(
        self,
        kind: type[_Kind],
        name: str,
        text: str,
        label: dict[str, tuple[str, ...]],
        **options: Any,
    ) -> dict[str, _Kind]:
        [(label_name, values)] = label.items()
        family = self._families.get(kind, name, text, (label_name,), **options)
        return {value: family.labels(self._model, value) for value in values}
