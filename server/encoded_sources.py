"""Where an encoder leaves the keys and values of the sources of a batch until they are copied."""

from __future__ import annotations

from typing import Any

from export.manifest import Manifest
from server.buffer import Allocate, Buffer, bind_input, bind_output
from server.interface import cache_names


class EncodedSources:
    """One buffer for each layer and half, allocated once, for batches of any shape that fits.

    A batch lies in the beginning of each as `[B, G, L, D]`: `B` sources, padded to the `L` tokens
    of the longest. Only the tokens of a source have keys and values that mean something.

    Args:
        tokens: the most that `B x L` may be.
    """

    def __init__(self, manifest: Manifest, tokens: int, allocate: Allocate) -> None:
        specs = {spec.name: spec for spec in manifest.graphs["encoder"].outputs}
        self._buffers: dict[str, Buffer] = {}
        for cache in cache_names(manifest):
            spec = specs[f"cross.{cache}"]
            _, kv_heads, _, head_dim = spec.shape
            self._buffers[cache] = allocate((tokens, int(kv_heads), int(head_dim)), spec.dtype)
        self._longest = 0

    def bind_batch(self, binding: Any, sources: int, longest: int) -> None:
        """Binds the outputs `cross.*` of a batch, which replaces the one before."""
        self._longest = longest
        for cache, buffer in self._buffers.items():
            _, kv_heads, head_dim = buffer.shape
            bind_output(binding, f"cross.{cache}", buffer, (sources, kv_heads, longest, head_dim))

    def bind_source(self, binding: Any, name: str, row: int) -> None:
        """Binds one source of the batch as input `name.*`, only to be read."""
        for cache, buffer in self._buffers.items():
            _, kv_heads, head_dim = buffer.shape
            shape = (1, kv_heads, self._longest, head_dim)
            bind_input(binding, f"{name}.{cache}", buffer, shape, row * self._longest)
