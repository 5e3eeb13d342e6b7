"""What computes for the engines, as they see it.

`EncoderRunner`, `DecoderRunner` and `Seq2seqRunner` say what each method does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from server.scheduler import Move

Embeddings = NDArray[np.float32]
Logits = NDArray[np.float32]


class TextRunner(Protocol):
    """Of an encoder: embeds texts."""

    provider: str

    def encode(self, texts: Sequence[Sequence[int]]) -> Embeddings: ...

    def warm_up(self) -> None: ...

    def probe(self) -> None: ...


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

    place_bytes: int

    def encode(self, sources: Sequence[Sequence[int]]) -> None: ...

    def place(self, index: int, row: int) -> None: ...

    def keep_source(self, row: int, places: Sequence[int]) -> None: ...

    def restore_source(self, places: Sequence[int], length: int, row: int) -> None: ...
