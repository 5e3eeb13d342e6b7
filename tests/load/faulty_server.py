"""`python -m tests.load.faulty_server DIR... FLAGS --bad-token ID`: a server whose runs often fail.

Every so often a run fails that would succeed if it were repeated, as a prefill chunk is, or taken
apart, as a decode step and a batch are. A run that is given the bad token always fails.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Sequence
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from server import decoder_engine, encoder_engine
from server.command import main
from server.decoder_runner import DecoderRunner
from server.encoder_runner import EncoderRunner
from server.runner import Logits

FLAG = "--bad-token"
_EVERY = 8  # runs: so often one fails that need not


class InjectedFault(Exception):
    """A run that was chosen to fail."""


class Faults:
    """Chooses the runs of one runner that fail; none does before it is armed."""

    bad_token = -1

    def __init__(self) -> None:
        self.armed = False
        self._runs = itertools.count()

    def strike(self, ids: Collection[int], *, alone: bool = False) -> None:
        """Fails a run of these ids, where it is chosen.

        Runs of a token or a text `alone`, which failed ones are taken apart into, fail for the bad
        token only.
        """
        if not self.armed:
            return
        if self.bad_token in ids or (not alone and next(self._runs) % _EVERY == 0):
            raise InjectedFault


class FaultyDecoderRunner(DecoderRunner):
    """Fails prefill chunks and decode steps."""

    _faults = Faults()

    def prefill(self, row: int, ids: Sequence[int], start: int, *, logits: int) -> Logits:
        self._faults.strike(ids, alone=len(ids) == 1)
        return super().prefill(row, ids, start, logits=logits)

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Logits:
        self._faults.strike(tokens)
        return super().decode(tokens, lengths)

    def warm_up(self) -> None:
        super().warm_up()
        self._faults.armed = True


class FaultyEncoderRunner(EncoderRunner):
    """Fails batches of texts."""

    _faults = Faults()

    def encode(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        self._faults.strike(set(itertools.chain(*texts)), alone=len(texts) == 1)
        return super().encode(texts)

    def warm_up(self) -> None:
        super().warm_up()
        self._faults.armed = True


def _serve(arguments: Sequence[str]) -> None:
    *others, flag, token = arguments
    assert flag == FLAG, "the bad token comes last"
    Faults.bad_token = int(token)
    with (
        patch.object(decoder_engine, "DecoderRunner", FaultyDecoderRunner),
        patch.object(encoder_engine, "EncoderRunner", FaultyEncoderRunner),
    ):
        main(others)


if __name__ == "__main__":
    _serve(sys.argv[1:])
