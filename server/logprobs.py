"""Log-probabilities of the raw distribution, before any penalty or warping."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from server.errors import NonFinite
from server.request import TokenLogprob
from server.warping import largest


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """The log-probabilities `[vocab]` float32 of all tokens, of finite logits `[vocab]`."""
    shifted: NDArray[np.float32] = logits - logits.max()
    shifted -= np.float32(np.log(np.exp(shifted).sum(dtype=np.float64)))
    return shifted


def token_logprob(logits: NDArray[np.float32], token_id: int, top: int) -> TokenLogprob:
    """The log-probability of one token, and of the `top` most probable ones, best first.

    Args:
        logits: `[vocab]` float32, finite.
        top: how many alternatives to list; of equal ones the lower id comes first.
    """
    highest = logits.max()
    normaliser = float(highest) + float(np.log(np.exp(logits - highest).sum(dtype=np.float64)))
    alternatives: list[tuple[int, float]] = []
    if top:
        ids = largest(logits, top)
        best = ids[np.argsort(-logits[ids], kind="stable")[:top]]
        alternatives = [(int(token), float(logits[token]) - normaliser) for token in best]
    return TokenLogprob(token_id, float(logits[token_id]) - normaliser, tuple(alternatives))


def prompt_logprobs(
    logits: NDArray[np.float32], token_ids: Sequence[int], top: int
) -> list[TokenLogprob]:
    """The log-probability of each token, and of the `top` most probable ones.

    Args:
        logits: `[tokens, vocab]` float32, each row of the position before its token.

    Raises:
        NonFinite: a row holds NaN or infinity.
    """
    if not np.isfinite(logits).all():
        raise NonFinite()
    return [
        token_logprob(row, token_id, top) for row, token_id in zip(logits, token_ids, strict=True)
    ]
