"""JSON values as the fields of a frozen dataclass, each of the type that the field declares."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, get_args, get_type_hints


class ConfigError(ValueError):
    """A configuration that cannot be built; the message names the field, the value and the fix."""


def typed_fields(cls: type[Any], values: Any, what: str) -> dict[str, Any]:
    """What to make an instance of the dataclass from.

    Its fields may be bool, int, float, enums of strings, other such dataclasses, or one of these or
    None. `what` says in messages what the dataclass describes.

    Raises:
        ConfigError: `values` is no object, or a field is unknown, missing or of the wrong type.
    """
    if not isinstance(values, dict):
        raise ConfigError(f"{what} is {values!r}; it must be an object")
    types = get_type_hints(cls)
    if unknown := sorted(set(values) - set(types)):
        raise ConfigError(f"unknown {what} fields: {', '.join(unknown)}")
    required = [field.name for field in fields(cls) if field.default is MISSING]
    if missing := [name for name in required if name not in values]:
        raise ConfigError(f"missing {what} fields: {', '.join(missing)}")
    return {name: _typed(name, value, types[name]) for name, value in values.items()}


def _typed(name: str, value: Any, wanted: Any) -> Any:
    if isinstance(wanted, UnionType):
        return None if value is None else _typed(name, value, get_args(wanted)[0])
    if is_dataclass(wanted):
        assert isinstance(wanted, type)
        return value if isinstance(value, wanted) else wanted(**typed_fields(wanted, value, name))
    if issubclass(wanted, StrEnum):
        return _member(name, value, wanted)
    accepted = (int, float) if wanted is float else wanted
    if not isinstance(value, accepted) or (isinstance(value, bool) and wanted is not bool):
        raise ConfigError(f"{name} is {value!r}; it must be of type {wanted.__name__}")
    return _float(name, value) if wanted is float else value


def _float(name: str, value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ConfigError(f"{name} is too large") from None


def _member(name: str, value: Any, enum: type[StrEnum]) -> StrEnum:
    try:
        return enum(value)
    except ValueError:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(enum)}") from None
