"""What a server says of its models when it is ready."""

from __future__ import annotations

from typing import Any

from server.limits import kept_bytes, slot_bytes
from server.models import Model, Models


def describe_models(models: Models) -> list[dict[str, Any]]:
    """For each model its identity and what it takes: lengths in tokens, memory in bytes."""
    return [_describe(model) for model in models]


def _describe(model: Model) -> dict[str, Any]:
    manifest = model.manifest
    facts: dict[str, Any] = {
        "name": model.name,
        "kind": manifest.kind,
        "precision": manifest.precision,
        "digest": manifest.digest,
        "provider": model.engines[0].provider,
        "artefact_bytes": sum(file.size for file in manifest.files.values()),
    }
    if model.encoder is not None:
        facts["max_input"] = model.max_input
    if model.generator is not None:
        limits = model.generator.limits
        facts |= {
            "slots": limits.slots,
            "capacity": limits.capacity,
            "source_capacity": limits.source_capacity,
            "prefill_chunk": limits.prefill_chunk,
            "cache_bytes": limits.slots * slot_bytes(manifest, limits),
            "prefix_cache_bytes": kept_bytes(manifest, limits),
        }
    return facts
