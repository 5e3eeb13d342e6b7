"""Every series of the server exists at zero, under its documented name and labels."""

from __future__ import annotations

from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry

from server.metrics import Metrics

SERIES = {
    "requests_started_total": {"model", "method"},
    "requests_total": {"model", "method", "code"},
    "tokens_total": {"model", "kind"},
    "requests_rejected_total": {"model", "reason"},
    "requests_cancelled_total": {"model", "stage"},
    "nonfinite_outputs_total": {"model"},
    "engine_steps_total": {"model", "phase"},
    "prefix_cache_lookups_total": {"model"},
    "prefix_cache_hits_total": {"model"},
    "prefix_cache_reused_tokens_total": {"model"},
    "requests_in_flight": {"model", "method"},
    "queue_depth": {"model"},
    "slots": {"model", "state"},
    "cache_tokens": {"model"},
    "cache_capacity_tokens": {"model"},
    "prefix_cache_bytes": {"model"},
    "ready": {"model"},
    "request_duration_seconds_count": {"model", "method"},
    "queue_duration_seconds_count": {"model", "method"},
    "tokenize_duration_seconds_count": {"model"},
    "step_duration_seconds_count": {"model", "phase"},
    "sampling_duration_seconds_count": {"model"},
    "time_to_first_token_seconds_count": {"model"},
    "inter_token_latency_seconds_count": {"model"},
    "batch_sequences_count": {"model", "phase"},
    "batch_tokens_count": {"model", "phase"},
    "request_prompt_tokens_count": {"model"},
    "request_generated_tokens_count": {"model"},
}

LABELS = {
    "model": {"one", "unknown"},
    "method": {
        "Embed",
        "EmbedStream",
        "Generate",
        "GenerateStream",
        "ListModels",
        "GetModel",
        "Tokenize",
        "Detokenize",
    },
    "code": {
        "OK",
        "ABORTED",
        "CANCELLED",
        "DEADLINE_EXCEEDED",
        "FAILED_PRECONDITION",
        "INTERNAL",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "RESOURCE_EXHAUSTED",
        "UNAUTHENTICATED",
        "UNAVAILABLE",
    },
    "reason": {
        "queue_full",
        "queue_tokens",
        "too_long",
        "invalid",
        "draining",
        "unauthenticated",
    },
    "phase": {"encode", "prefill", "decode"},
    "kind": {"prompt", "generated", "embedded"},
    "stage": {"queued", "running"},
    "state": {"used", "free"},
}


def samples(registry: CollectorRegistry, name: str) -> list[tuple[dict[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name == f"formerd_{name}"
    ]


@pytest.mark.parametrize("name", SERIES)
def test_a_series_is_zero_for_each_model_from_the_start(name: str) -> None:
    registry = CollectorRegistry()
    Metrics(registry, ["one", "two"])
    found = samples(registry, name)
    assert {"one", "two"} <= {labels["model"] for labels, _ in found}
    assert all(set(labels) == SERIES[name] for labels, _ in found)
    assert all(value == 0 for _, value in found)


def test_calls_of_unknown_models_are_counted_too() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, [])
    metrics.unknown.requests["Embed"]["NOT_FOUND"].inc()
    labels = {"model": "unknown", "method": "Embed", "code": "NOT_FOUND"}
    assert (labels, 1.0) in samples(registry, "requests_total")


def test_a_label_outside_its_closed_set_is_refused() -> None:
    metrics = Metrics(CollectorRegistry(), ["one"]).model("one")
    with pytest.raises(KeyError):
        metrics.engine_steps["prefil"].inc()


def test_durations_tell_a_step_of_200_microseconds_from_one_of_a_minute() -> None:
    registry = CollectorRegistry()
    Metrics(registry, ["one"])
    found = samples(registry, "step_duration_seconds_bucket")
    bounds = sorted({float(labels["le"]) for labels, _ in found})
    assert bounds[0] == pytest.approx(1e-4)
    assert 60 <= bounds[-2] <= 120
    assert all(high <= 2.001 * low for low, high in pairwise(bounds[:-1]))


def test_labels_take_no_other_values_than_the_documented_ones() -> None:
    registry = CollectorRegistry()
    Metrics(registry, ["one"])
    found: dict[str, set[str]] = {}
    for family in registry.collect():
        for sample in family.samples:
            for label, value in sample.labels.items():
                found.setdefault(label, set()).add(value)
    del found["le"]
    assert found == LABELS


def test_memory_and_time_of_the_process_are_told_too() -> None:
    registry = CollectorRegistry()
    Metrics(registry, [])
    assert registry.get_sample_value("process_resident_memory_bytes")
    assert registry.get_sample_value("process_cpu_seconds_total")
