"""Runs an encoder's graph on texts packed without padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from server.artefact import Artefact
from server.limits import EncoderLimits
from server.packing import NO_MEMORY, pack
from server.replay import needs_replay, replay_encoder
from server.shared_session import SharedSession


class EncoderRunner:
    """Turns texts into vectors; to be used by one thread only.

    Args:
        session: the encoder's, where something else runs it, too; None opens one.

    Attributes:
        provider: the execution provider that runs the graph.

    Raises:
        ArtefactError, DeviceError: as `open_session`.
    """

    def __init__(
        self,
        artefact: Artefact,
        limits: EncoderLimits,
        *,
        device_index: int = 0,
        threads: int = 1,
        session: SharedSession | None = None,
    ) -> None:
        self._artefact = artefact
        session = session or SharedSession(
            artefact, "encoder", device_index=device_index, threads=threads
        )
        self._session = session.open()
        # An encoder-decoder's encoder also computes what its decoder reads, for which an embedding
        # has no use.
        self._memory_map = NO_MEMORY if artefact.manifest.kind == "encoder_decoder" else None
        self._limits = limits
        self.provider: str = self._session.get_providers()[0]

    def encode(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """The embeddings `[texts, d_model]` of at least one text of at least one id each."""
        vectors: NDArray[np.float32] = self._session.run(
            ["embeddings"], pack(texts).feeds(self._memory_map)
        )[0]
        return vectors

    def warm_up(self) -> None:
        """Runs the largest shapes, so that the memory they need is there before it is needed.

        Raises:
            DeviceError: the device is new to the artefact and computes other numbers.
        """
        longest, budget = self._limits.max_input, self._limits.max_batch_tokens
        self.encode([[0] * longest] * max(1, budget // longest))
        self.encode([[0]] * budget)
        if needs_replay(self._artefact):
            replay_encoder(self._artefact, self)

    def probe(self) -> None:
        """Runs a small text; raises where the model cannot run at all."""
        self.encode([[0]])
