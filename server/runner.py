"""What computes for the engine of a decoder, as the engine sees it.

`DecoderRunner` and `Seq2seqRunner` say what each method does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from server.scheduler import Move
from server.slots import CacheSlots

Logits = NDArray[np.float32]
Memory = CacheSlots  # of one slot, as long as the source whose keys and values it holds


class Runner(Protocol):
    """Decodes a token of every running row, and moves rows."""

    provider: str

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Logits: ...

    def decode_row(self, row: int, token: int, length: int) -> Logits: ...

    def move(self, move: Move) -> None: ...

    def warm_up(self) -> None: ...

    def probe(self, row: int) -> None: ...


class PromptRunner(Runner, Protocol):
    """Of a decoder: computes prompts chunk by chunk."""

    chunk_bytes: int

    def prefill(self, row: int, ids: Sequence[int], start: int, *, logits: int) -> Logits: ...

    def keep_chunk(self, row: int, start: int, place: int) -> None: ...

    def restore_chunk(self, place: int, row: int, start: int) -> None: ...


@runtime_checkable
class SourceRunner(Runner, Protocol):
    """Of an encoder-decoder: encodes sources, and copies what was encoded to rows."""

    source_token_bytes: int

    def encode(self, sources: Sequence[Sequence[int]]) -> None: ...

    def place(self, index: int, row: int) -> None: ...

    def keep_memory(self, row: int) -> Memory: ...

    def restore_memory(self, memory: Memory, row: int) -> None: ...
