"""JSON with one spelling, and read as the types that it must have.

Imports the standard library alone, as does the manifest, which is made of it.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


class MistypedJson(ValueError):
    """A value of another type than it must have; the message names its place."""


def canonical_json(values: Any) -> bytes:
    """Sorted keys, UTF-8, no spaces."""
    text = json.dumps(
        values, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return text.encode()


def read_as(wanted: Any, value: Any, where: str) -> Any:
    """JSON values as the type `wanted`: dataclasses, enumerations, tuples, dictionaries, numbers.

    Args:
        where: how messages name the value itself; what lies in it is named after it.

    Raises:
        MistypedJson: naming the place of the first value that does not fit.
    """
    if is_dataclass(wanted):
        return _read_dataclass(wanted, value, where)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return _read_union(arguments, value, where)
    if origin is tuple:
        items = _expect(list, value, where)
        return tuple(read_as(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(items))
    if origin is dict:
        mapping = _expect(dict, value, where)
        return {key: read_as(arguments[1], item, f"{where}.{key}") for key, item in mapping.items()}
    if wanted is Any:
        return value
    if issubclass(wanted, StrEnum):
        if value not in list(wanted):
            raise MistypedJson(f"{where} is {value!r}; it must be one of {', '.join(wanted)}")
        return wanted(value)
    return _expect(wanted, value, where)


def _read_dataclass(wanted: Any, value: Any, where: str) -> Any:
    values = _expect(dict, value, where)
    hints = get_type_hints(wanted)
    names = [item.name for item in fields(wanted)]
    if unknown := sorted(set(values) - set(names)):
        raise MistypedJson(f"{where} has unknown fields: {', '.join(unknown)}")
    if missing := sorted(set(names) - set(values)):
        raise MistypedJson(f"{where} lacks {', '.join(missing)}")
    return wanted(**{name: read_as(hints[name], values[name], f"{where}.{name}") for name in names})


def _read_union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    for argument in arguments:
        if argument is type(None):
            if value is None:
                return None
            continue
        try:
            return read_as(argument, value, where)
        except MistypedJson as error:
            problem = error
    raise problem


def _expect(wanted: type, value: Any, where: str) -> Any:
    right = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    if not right:
        raise MistypedJson(f"{where} is {value!r}; it must be of type {wanted.__name__}")
    return value
