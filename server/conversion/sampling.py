"""From the protocol's sampling parameters, and the checkpoint's, to the domain's."""

from __future__ import annotations

import math
from typing import Any

from formerd.v1 import generation_pb2 as pb

from export.manifest import GenerationDefaults
from server.conversion.ranges import Range, check_ids
from server.errors import InvalidInput
from server.request import Sampling

_RANGES = {
    "temperature": Range(0, 100),
    "top_k": Range(0, math.inf),
    "top_p": Range(0, 1, above=True),
    "min_p": Range(0, 1),
    "repetition_penalty": Range(0, 10, above=True),
    "presence_penalty": Range(-2, 2),
    "frequency_penalty": Range(-2, 2),
}
_WARPING = {"top_k", "top_p", "min_p"}
_OF_CHECKPOINT = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def read_sampling(
    message: pb.Sampling, defaults: GenerationDefaults, vocabulary_size: int, drawn_seed: int
) -> Sampling:
    """Checks what is given and fills in what is not, field by field.

    Raises:
        InvalidInput: a value is out of its range.
    """
    given = {name: getattr(message, name) for name in _RANGES if message.HasField(name)}
    for name, value in given.items():
        _RANGES[name].check(f"sampling.{name}", value)
    values = _checkpoint_values(defaults) | given
    if _WARPING & values.keys():
        values.setdefault("temperature", 1.0)
    if values.get("top_k", 0) >= vocabulary_size:
        values["top_k"] = 0
    return Sampling(
        **values,
        seed=message.seed if message.HasField("seed") else drawn_seed,
        logit_bias=_read_bias(message, vocabulary_size),
    )


def _checkpoint_values(defaults: GenerationDefaults) -> dict[str, Any]:
    """The checkpoint's own parameters, which count only where it samples."""
    if not defaults.do_sample:
        return {}
    values = {name: getattr(defaults, name) for name in _OF_CHECKPOINT}
    stated = {name: value for name, value in values.items() if value is not None}
    return {"temperature": 1.0} | stated


def _read_bias(message: pb.Sampling, vocabulary_size: int) -> tuple[tuple[int, float], ...]:
    bias = tuple(sorted(message.logit_bias.items()))
    check_ids("sampling.logit_bias", tuple(token_id for token_id, _ in bias), vocabulary_size)
    for token_id, value in bias:
        if not math.isfinite(value):
            raise InvalidInput(f"sampling.logit_bias[{token_id}] is {value:g}; it must be finite")
    return bias
