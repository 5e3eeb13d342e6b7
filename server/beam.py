"""Beam search: of all ways to go on, keep those that are most probable together.

What Hugging Face transformers does with `num_beams`, its `length_penalty` and its default of
`early_stopping`, in one place: scores are sums of log-probabilities after the request's rules
(penalties, biases, forbidden ends); finished hypotheses are ranked by their score divided by their
length to the power of the penalty; the search ends when the best running beam, at its present
length, cannot beat the worst of a full set of finished ones.

A beam lives in a slot, which is a row of the cache. The slots of the next step are dealt out so
that a parent keeps its own: a row is copied only for the second child on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from server.warping import largest

_NEVER = np.float32(-1e9)  # the score of a beam that stands for none


class Hypothesis(Protocol):
    """A continuation of the prompt; `ended` where nothing may follow it."""

    @property
    def ended(self) -> bool: ...


H = TypeVar("H", bound=Hypothesis)


@dataclass(frozen=True)
class _Candidate:
    """A beam and a token that could follow it; `score` is the sum of log-probabilities."""

    slot: int
    token_id: int
    score: np.float32


class BeamSearch(Generic[H]):
    """One search, of at least two beams.

    Attributes:
        running: the hypothesis of each slot.
        finished: those that have ended with their penalised scores, best first; at most `width`.
        done: whether the search has ended; then as many have finished as beams were followed.

    Args:
        beginning: the hypothesis of no token; every slot begins with it.
        width: beams that are followed.
        length_penalty: above 0 favours long hypotheses, below 0 short ones.
        ends: how many different tokens can end a hypothesis.
    """

    def __init__(self, beginning: H, width: int, length_penalty: float, ends: int) -> None:
        self.running = [beginning] * width
        self.finished: list[tuple[float, H]] = []
        self.done = False
        self._width = width
        self._length_penalty = length_penalty
        self._most_candidates = max(2, 1 + ends) * width  # ends alone cannot exhaust them
        # Slots begin alike: were more than one to go on, they would stay alike for ever.
        self._scores = np.full(width, _NEVER, np.float32)
        self._scores[0] = 0
        self._length = 0

    def step(
        self, log_probabilities: NDArray[np.float32], extend: Callable[[int, int], H]
    ) -> list[int]:
        """Adds a token to every beam.

        Args:
            log_probabilities: `[width, vocab]` float32, of the token after each slot's hypothesis;
                -inf forbids a token.
            extend: makes the hypothesis of a slot longer by a token; asked for candidates in
                order of their scores until the next beams are found.

        Returns:
            For each slot the one whose hypothesis its new one continues. A slot that is named
            names itself, so that copies from slots that are named to those that are not can be
            made in any order.
        """
        self._length += 1
        going: list[tuple[_Candidate, H]] = []
        for rank, candidate in enumerate(self._best(log_probabilities)):
            longer = extend(candidate.slot, candidate.token_id)
            if not longer.ended:
                going.append((candidate, longer))
            elif rank < self._width:
                self._finish(candidate, longer)
            if len(going) == self._width and rank >= self._width - 1:
                break
        self.done = not (going and self._can_improve(going[0][0].score))
        return list(range(self._width)) if self.done else self._settle(going)

    def _best(self, log_probabilities: NDArray[np.float32]) -> Iterator[_Candidate]:
        """Candidates, best first; of equal ones the lower slot and token come first."""
        totals = log_probabilities + self._scores[:, np.newaxis]  # [width, vocab]
        count = self._most_candidates
        tokens = [largest(row, count) for row in totals]
        slots = np.repeat(np.arange(self._width), [len(each) for each in tokens])
        token_ids = np.concatenate(tokens)
        scores = totals[slots, token_ids]
        for index in np.argsort(-scores, kind="stable")[:count]:
            if scores[index] == -np.inf:
                return
            yield _Candidate(int(slots[index]), int(token_ids[index]), scores[index])

    def _finish(self, candidate: _Candidate, hypothesis: H) -> None:
        """Ranks a hypothesis among the best that have ended."""
        self.finished.append((self._penalised(candidate.score), hypothesis))
        self.finished.sort(key=lambda each: each[0], reverse=True)
        del self.finished[self._width :]

    def _penalised(self, score: np.float32) -> float:
        weight: float = float(self._length) ** self._length_penalty
        return float(score) / weight

    def _can_improve(self, best_running: np.float32) -> bool:
        """Whether a running beam may still get among the finished: the rule of transformers.

        It takes the present length for the final one, which with a penalty above 0 may stop a
        search that could have gone on to something better.
        """
        if len(self.finished) < self._width:
            return True
        worst, _ = self.finished[-1]
        return self._penalised(best_running) > worst

    def _settle(self, going: Sequence[tuple[_Candidate, H]]) -> list[int]:
        """Deals out the slots; what each continues."""
        (first, hypothesis), *_ = going
        nobody = (_Candidate(first.slot, first.token_id, _NEVER), hypothesis)
        children = [*going, *[nobody] * (self._width - len(going))]
        homes: dict[int, tuple[_Candidate, H]] = {}
        others = [
            child for child in children if homes.setdefault(child[0].slot, child) is not child
        ]
        free = (slot for slot in range(self._width) if slot not in homes)
        homes |= dict(zip(free, others, strict=True))
        parents = []
        for slot in range(self._width):
            candidate, self.running[slot] = homes[slot]
            self._scores[slot] = candidate.score
            parents.append(candidate.slot)
        return parents
