"""Protobuf messages of any content, from nothing but their descriptors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

_LONGEST_LIST = 4
_FLOAT = st.floats(width=32) | st.sampled_from([0.0, 1.0, -1.0, 1e-45, math.inf, math.nan])


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(0, 40) | st.integers(least, most) | st.sampled_from([least, most])


_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=40),
    FieldDescriptor.TYPE_DOUBLE: _FLOAT,
    FieldDescriptor.TYPE_FLOAT: _FLOAT,
    FieldDescriptor.TYPE_INT32: _integers(32, signed=True),
    FieldDescriptor.TYPE_INT64: _integers(64, signed=True),
    FieldDescriptor.TYPE_STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    FieldDescriptor.TYPE_UINT32: _integers(32, signed=False),
    FieldDescriptor.TYPE_UINT64: _integers(64, signed=False),
}


@st.composite
def messages(draw: Callable[..., Any], descriptor: Descriptor) -> Message:
    """Messages with some of their fields set, to any value that the wire can carry."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if not draw(st.booleans()):
            continue
        value = draw(_values(field))
        if field.message_type is not None and not field.is_repeated:
            getattr(message, field.name).CopyFrom(value)
        elif field.is_repeated and isinstance(value, dict):
            getattr(message, field.name).update(value)
        elif field.is_repeated:
            getattr(message, field.name).extend(value)
        else:
            setattr(message, field.name, value)
    return message


def _values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        keys, values = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return st.dictionaries(_values(keys), _values(values), max_size=_LONGEST_LIST)
    if field.message_type is not None:
        one: st.SearchStrategy[Any] = messages(field.message_type)
    else:
        one = _SCALARS[field.type]
    return st.lists(one, max_size=_LONGEST_LIST) if field.is_repeated else one
