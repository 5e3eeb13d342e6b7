"""Runs steps so that a failure stays with the request that causes it.

A decode step that raises is computed again row by row: the rows that raise alone have failed, the
others go on as if nothing had happened. Where everything fails, a small request of our own decides
whether it is the model that cannot run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import structlog

from server.engine_thread import EngineDead
from server.errors import ServerError
from server.runner import Logits, Runner
from server.session import step_error

_log = structlog.get_logger()


def decode_carefully(
    runner: Runner, tokens: Sequence[int], lengths: Sequence[int]
) -> tuple[Logits, dict[int, ServerError]]:
    """Computes one token of each of the leading rows.

    Returns:
        `[rows, vocab]`, and the errors of the rows that failed; their logits mean nothing.

    Raises:
        EngineDead: every row failed, and the model cannot run at all.
    """
    try:
        return runner.decode(tokens, lengths), {}
    except Exception:
        _log.exception("a decode step failed and is computed row by row", rows=len(tokens))
    return _decode_row_by_row(runner, tokens, lengths)


def check_model(runner: Runner, row: int) -> None:
    """Finds out whether the model runs at all, in a row whose request has failed.

    Raises:
        EngineDead: it does not.
    """
    try:
        runner.probe(row)
    except Exception as error:
        raise EngineDead("the model fails whatever it is given") from error


def _decode_row_by_row(
    runner: Runner, tokens: Sequence[int], lengths: Sequence[int]
) -> tuple[Logits, dict[int, ServerError]]:
    logits: dict[int, Logits] = {}
    errors: dict[int, ServerError] = {}
    for row, (token, length) in enumerate(zip(tokens, lengths, strict=True)):
        try:
            alone = runner.decode_row(row, token, length)
        except Exception as error:
            _log.exception("a row failed alone", row=row)
            errors[row] = step_error(error)
        else:
            logits[row] = alone[0].copy()
    if not logits:
        check_model(runner, 0)
        return np.empty((len(tokens), 0), np.float32), errors
    nothing = np.zeros_like(next(iter(logits.values())))
    return np.stack([logits.get(row, nothing) for row in range(len(tokens))]), errors
