"""The key/value cache: a value that is passed in and returned, never the state of a module."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class LayerCache(NamedTuple):
    """Keys and values of one layer, `[B, G, K, D]` each (`G` key/value heads, `K` positions)."""

    key: Tensor
    value: Tensor


Cache = tuple[LayerCache, ...]  # one a layer
