"""Runs steps so that a failure stays with the request that causes it.

A decode step that raises is computed again row by row: the rows that raise alone have failed, the
others go on as if nothing had happened. Where everything fails, a small request of our own decides
whether it is the model that cannot run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from server.engine_thread import EngineDead
from server.errors import ServerError
from server.session import step_error

_log = structlog.get_logger()
Logits = NDArray[np.float32]


class Runner(Protocol):
    """What computes; `DecoderRunner` says what each method does."""

    provider: str
    chunk_bytes: int

    def prefill(self, row: int, ids: Sequence[int], start: int, *, logits: int) -> Logits: ...

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Logits: ...

    def move(self, source: int, destination: int, start: int, end: int) -> None: ...

    def keep_chunk(self, row: int, start: int, place: int) -> None: ...

    def restore_chunk(self, place: int, row: int, start: int) -> None: ...

    def warm_up(self) -> None: ...

    def probe(self, row: int) -> None: ...


class CarefulRunner:
    """A runner whose failures are told apart."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.provider = runner.provider
        self.chunk_bytes = runner.chunk_bytes
        self.move = runner.move
        self.keep_chunk = runner.keep_chunk
        self.restore_chunk = runner.restore_chunk
        self.warm_up = runner.warm_up

    def prefill(self, row: int, ids: Sequence[int], start: int, *, logits: int) -> Logits:
        """Computes a chunk of one row, and once more if it fails.

        Raises:
            StepFailed, OverLimit: it failed again; the row holds nothing of use.
            EngineDead: the model cannot run at all.
        """
        try:
            return self._runner.prefill(row, ids, start, logits=logits)
        except Exception:
            _log.exception("a prefill chunk failed and is computed again", row=row)
        try:
            return self._runner.prefill(row, ids, start, logits=logits)
        except Exception as error:
            _log.exception("a prefill chunk failed again", row=row)
            self._probe(row)
            raise step_error(error) from error

    def decode(
        self, tokens: Sequence[int], lengths: Sequence[int]
    ) -> tuple[Logits, dict[int, ServerError]]:
        """Computes one token of each of the leading rows.

        Returns:
            `[rows, vocab]`, and the errors of the rows that failed; their logits mean nothing.

        Raises:
            EngineDead: every row failed, and the model cannot run at all.
        """
        try:
            return self._runner.decode(tokens, lengths), {}
        except Exception:
            _log.exception("a decode step failed and is computed row by row", rows=len(tokens))
        return self._decode_row_by_row(tokens, lengths)

    def _decode_row_by_row(
        self, tokens: Sequence[int], lengths: Sequence[int]
    ) -> tuple[Logits, dict[int, ServerError]]:
        logits: dict[int, Logits] = {}
        errors: dict[int, ServerError] = {}
        for row, (token, length) in enumerate(zip(tokens, lengths, strict=True)):
            try:
                alone = self._runner.prefill(row, [token], length, logits=1)
            except Exception as error:
                _log.exception("a row failed alone", row=row)
                errors[row] = step_error(error)
            else:
                logits[row] = alone[0].copy()
        if not logits:
            self._probe(0)
            return np.empty((len(tokens), 0), np.float32), errors
        nothing = np.zeros_like(next(iter(logits.values())))
        return np.stack([logits.get(row, nothing) for row in range(len(tokens))]), errors

    def _probe(self, row: int) -> None:
        """Whether the model runs at all, found out in a row whose request has failed."""
        try:
            self._runner.probe(row)
        except Exception as error:
            raise EngineDead("the model fails whatever it is given") from error
