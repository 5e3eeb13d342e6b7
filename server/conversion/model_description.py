"""From a loaded model to what the protocol says of it."""

from __future__ import annotations

from formerd.v1 import models_pb2 as pb

from export.manifest import Task
from server.conversion.embedding import max_inputs
from server.models import Model

_KINDS = {
    "encoder": pb.MODEL_KIND_ENCODER,
    "decoder": pb.MODEL_KIND_DECODER,
    "encoder_decoder": pb.MODEL_KIND_ENCODER_DECODER,
}
_TASKS = {Task.EMBED: pb.TASK_EMBED, Task.GENERATE: pb.TASK_GENERATE}


def write_model(model: Model, max_response_bytes: int) -> pb.Model:
    """Everything that a caller may want to know of a model."""
    manifest, pooling = model.manifest, model.manifest.pooling
    return pb.Model(
        name=manifest.name,
        kind=_KINDS[manifest.kind],
        task=[_TASKS[task] for task in manifest.task],
        precision=manifest.precision,
        device=manifest.device,
        provider=model.engines[0].provider,
        verified_on=manifest.verified_on,
        dimensions=pooling.dimensions if pooling else 0,
        limits=_write_limits(model, max_response_bytes),
        pooling=pooling.mode if pooling else "",
        prompt_names=sorted(manifest.prompts),
        vocabulary_size=manifest.vocabulary_size,
        digest=manifest.digest,
    )


def _write_limits(model: Model, max_response_bytes: int) -> pb.Limits:
    pooling, generator = model.manifest.pooling, model.generator
    return pb.Limits(
        max_input_tokens=model.max_input,
        capacity=generator.limits.capacity if generator else 0,
        max_inputs=max_inputs(pooling.dimensions, max_response_bytes) if pooling else 0,
        slots=generator.limits.slots if generator else 0,
    )
