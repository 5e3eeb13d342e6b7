"""What the next token of a completion has to be, or may not be: forced and forbidden tokens.

The checkpoint's rules, the twin in NumPy of `model.decoding_rules`, and the request's own
`min_new_tokens`.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from server.errors import InvalidInput
from server.ngrams import Ngrams
from server.request import NO_RULES, GenerationRequest


class Constraints:
    """Those on the next token of one completion.

    Attributes:
        forced_id: what it has to be; None where several may come.
        forbidden_ids: what it may not be. Where that is the whole vocabulary, nothing is forbidden.
    """

    @classmethod
    def of(cls, request: GenerationRequest, vocabulary_size: int, room: int) -> Self | None:
        """Those of a request; None where any token may come at any time.

        Args:
            room: how many tokens the cache can still take.

        Raises:
            InvalidInput: every token is forbidden until `min_new_tokens` are generated.
        """
        stopping = request.stopping
        if not stopping.min_new_tokens and replace(request.rules, renormalised=False) == NO_RULES:
            return None
        return cls(request, vocabulary_size, room)

    def __init__(self, request: GenerationRequest, vocabulary_size: int, room: int) -> None:
        stopping, self._rules = request.stopping, request.rules
        # There is no logit beyond the vocabulary.
        logits = range(vocabulary_size)
        self._eos_ids = frozenset(token for token in stopping.eos_ids if token in logits)
        self._ends = self._eos_ids.union(t for t in stopping.stop_token_ids if t in logits)
        if stopping.min_new_tokens and len(self._ends) == vocabulary_size:
            raise InvalidInput(
                "stopping.stop_token_ids holds the whole vocabulary; with min_new_tokens some "
                "token must be left"
            )
        self._min_new_tokens = stopping.min_new_tokens
        self._most = min(stopping.max_new_tokens, room)
        self._starts = len(request.prompt) == 1
        size = self._rules.ngram_size
        self._ngrams = Ngrams(size, request.prompt) if size else None
        self._new_tokens = 0
        self._look_ahead()

    def count(self, token_id: int) -> None:
        """Adds a generated token."""
        self._new_tokens += 1
        if self._ngrams is not None:
            self._ngrams.add(token_id)
        self._look_ahead()

    def fork(self) -> Constraints:
        """Those of a completion that goes on from here by itself."""
        other = copy.copy(self)
        other._ngrams = self._ngrams and self._ngrams.fork()
        return other

    @property
    def free(self) -> bool:
        """Whether any token may come."""
        return self.forced_id is None and not self.forbidden_ids

    def allow(self, token_id: int) -> bool:
        """Whether this token may come."""
        if self.forced_id is not None:
            return token_id == self.forced_id
        return token_id not in self.forbidden_ids

    def apply(self, scores: NDArray[np.float32]) -> None:
        """Sets the scores `[vocab]` of what may not come to -inf, in place; a forced token's to 0,
        which is what a beam search adds for it."""
        if self.forced_id is not None:
            scores.fill(-np.inf)
            scores[self.forced_id] = 0
        elif 0 < len(self.forbidden_ids) < scores.size:
            scores[list(self.forbidden_ids)] = -np.inf

    def _look_ahead(self) -> None:
        """Finds what holds for the next token."""
        self.forced_id = self._forced()
        forbidden = set(self._rules.forbidden_ids)
        if self._ngrams is not None:
            forbidden.update(self._ngrams.repeating)
        if self._new_tokens < self._rules.min_new_tokens:
            forbidden |= self._eos_ids
        if self._new_tokens < self._min_new_tokens:
            forbidden |= self._ends
        self.forbidden_ids = frozenset(forbidden)

    def _forced(self) -> int | None:
        if self._new_tokens == self._most - 1 and self._rules.last_id is not None:
            return self._rules.last_id
        if self._starts and self._new_tokens == 0:
            return self._rules.first_id
        return None
