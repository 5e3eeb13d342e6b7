"""The key/value cache of a decoder: one slab for each layer and half, a row for each slot."""

from __future__ import annotations

import math
from typing import Any

from export.manifest import Manifest
from server.buffer import Allocate, Buffer, bind_input, bind_output
from server.interface import cache_names


class CacheSlots:
    """Slabs `[slots, G, capacity, D]`, allocated once; graphs read and write them in place.

    Args:
        part: which inputs of the decoder they are for, `past` or `cross`.
    """

    def __init__(
        self, manifest: Manifest, part: str, slots: int, capacity: int, allocate: Allocate
    ) -> None:
        specs = {spec.name: spec for spec in manifest.graphs["decoder"].inputs}
        self._slabs: dict[str, Buffer] = {}
        for cache in cache_names(manifest):
            spec = specs[f"{part}.{cache}"]
            _, kv_heads, _, head_dim = spec.shape
            shape = (slots, int(kv_heads), capacity, int(head_dim))
            self._slabs[cache] = allocate(shape, spec.dtype)

    @property
    def row_bytes(self) -> int:
        """Memory of one row, all slabs together."""
        return sum(math.prod(slab.shape[1:]) * slab.dtype.itemsize for slab in self._slabs.values())

    def bind(self, binding: Any, past: str, present: str, first: int, rows: int) -> None:
        """Binds `rows` rows from `first` on as input `past.*` and, in place, output `present.*`."""
        for cache, slab in self._slabs.items():
            shape = (rows, *slab.shape[1:])
            bind_input(binding, f"{past}.{cache}", slab, shape, first)
            bind_output(binding, f"{present}.{cache}", slab, shape, first)

    def bind_source(self, binding: Any, name: str, row: int) -> None:
        """Binds one row as input `name.*`, only to be read."""
        for cache, slab in self._slabs.items():
            bind_input(binding, f"{name}.{cache}", slab, (1, *slab.shape[1:]), row)
