"""Rotary positions, as the config.json of llama and its relatives describes them."""

from __future__ import annotations

from typing import Any

from model.checkpoint import CheckpointError

_NAMES = ("rope_scaling", "rope_parameters")  # before and since transformers 5
_KINDS = ("linear", "llama3")
_UNSCALED = ("default", "none")
_PARAMETERS = {  # ours -> theirs, of llama3
    "low_frequency_factor": "low_freq_factor",
    "high_frequency_factor": "high_freq_factor",
    "original_positions": "original_max_position_embeddings",
}
_KNOWN = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"}


def read_rope(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Our fields `rope_theta` and `rope_scaling`, as JSON values.

    Raises:
        CheckpointError: the positions are scaled in a way that formerd does not do.
    """
    fields: dict[str, Any] = {
        "rope_theta": values.get("rope_theta", 10_000.0),
        "rope_scaling": None,
    }
    for name in _NAMES:
        parameters = values.get(name)
        if not parameters:
            continue
        _check(parameters, f"{where}: {name}")
        fields["rope_theta"] = parameters.get("rope_theta", fields["rope_theta"])
        fields["rope_scaling"] = _scaling(parameters, values)
    return fields


def _check(parameters: Any, where: str) -> None:
    if not isinstance(parameters, dict):
        raise CheckpointError(f"{where} is {parameters!r}; it must be an object")
    kind = _kind(parameters)
    if kind not in (*_UNSCALED, *_KINDS):
        raise CheckpointError(
            f"{where} is of type {kind!r}; supported are default (no scaling), {', '.join(_KINDS)}"
        )
    if unknown := sorted(parameters.keys() - _KNOWN - set(_PARAMETERS.values())):
        raise CheckpointError(f"{where} has {', '.join(unknown)}, which is not supported")
    if parameters.get("partial_rotary_factor", 1) != 1:
        part = parameters["partial_rotary_factor"]
        raise CheckpointError(f"{where} has partial_rotary_factor {part}, supported: 1")


def _scaling(parameters: dict[str, Any], values: dict[str, Any]) -> dict[str, Any] | None:
    kind = _kind(parameters)
    if kind in _UNSCALED:
        return None
    scaling = {"kind": kind}
    if "factor" in parameters:
        scaling["factor"] = parameters["factor"]
    if kind == "llama3":
        longest = "original_max_position_embeddings"  # some keep it beside the parameters
        theirs = {longest: values["max_position_embeddings"], **parameters}
        theirs[longest] = values.get(longest, theirs[longest])
        scaling |= {ours: theirs[name] for ours, name in _PARAMETERS.items() if name in theirs}
    return scaling


def _kind(parameters: dict[str, Any]) -> Any:
    return parameters.get("rope_type", parameters.get("type", "default"))
