"""Log-probabilities of the raw distribution, before any penalty or warping."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from server.request import TokenLogprob
from server.warping import largest


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
