"""Chooses the next token of every row of a step, each by its own request's rules."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.constraints import Constraints
from server.errors import InvalidInput
from server.logprobs import log_softmax, token_logprob
from server.penalties import Penalties
from server.random_numbers import uniform
from server.request import GenerationRequest, Sampling, TokenLogprob
from server.warping import warp

_LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True)
class Choice:
    """The token chosen for one row.

    Attributes:
        logprob: set where the request's output asks for it.
        finite: False where the row's logits hold NaN or infinity; then `token_id` means nothing.
    """

    token_id: int
    logprob: TokenLogprob | None = None
    finite: bool = True


class SamplingRow:
    """The rules of one completion, and of its past what they depend on.

    Raises:
        InvalidInput: a biased token is outside the vocabulary, or every token of it is forbidden
            until `min_new_tokens` are generated.
    """

    def __init__(
        self, request: GenerationRequest, completion_index: int, vocabulary_size: int, room: int
    ) -> None:
        """`room` is how many tokens the cache can still take."""
        self.sampling = sampling = request.sampling
        self.output = request.output
        self.completion_index = completion_index
        self.position = 0  # tokens chosen so far
        self._renormalised = request.rules.renormalised
        self._constraints = Constraints.of(request, vocabulary_size, room)
        self._penalties = (
            Penalties(sampling, request.prompt, vocabulary_size) if _penalised(sampling) else None
        )
        self._bias_ids = np.array([token for token, _ in sampling.logit_bias], np.int64)
        self._bias = np.array([bias for _, bias in sampling.logit_bias], np.float32)
        if self._bias_ids.size and self._bias_ids.max() >= vocabulary_size:
            raise InvalidInput(
                f"sampling.logit_bias names token {self._bias_ids.max()}; ids of this model are "
                f"below {vocabulary_size}"
            )

    def settles_for(self, best: int) -> bool:
        """Whether the next token is simply `best`, the one of the largest logit."""
        return (
            self.sampling.greedy
            and not self._weighs
            and (self._constraints is None or self._constraints.allow(best))
        )

    def accept(self, token_id: int) -> None:
        """Adds the token that was chosen for this row."""
        self.position += 1
        if self._penalties is not None:
            self._penalties.count(token_id)
        if self._constraints is not None:
            self._constraints.count(token_id)

    def fork(self) -> SamplingRow:
        """One that goes on from here by itself."""
        other = copy.copy(self)
        other._penalties = self._penalties and self._penalties.fork()
        other._constraints = self._constraints and self._constraints.fork()
        return other

    def choose(self, logits: NDArray[np.float32]) -> int:
        """The next token, from the row's own finite logits `[vocab]`, which stay as they are."""
        scores = self.edited(logits)
        if self.sampling.greedy:
            return int(scores.argmax())
        number = uniform(self.sampling.seed, self.completion_index, self.position)
        return warp(scores, self.sampling).draw(number)

    def edited(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits after penalties, then biases, then constraints: a copy if need be."""
        constraints = self._constraints
        if not self._weighs and (constraints is None or constraints.free):
            return logits
        scores = logits.copy()
        if self._penalties is not None:
            self._penalties.apply(scores)
        with np.errstate(over="ignore"):
            biased = scores[self._bias_ids] + self._bias
        scores[self._bias_ids] = np.clip(biased, -_LARGEST, _LARGEST)
        if constraints is not None:
            constraints.apply(scores)
        return scores

    def beam_scores(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """What each next token adds to the score of a beam, -inf for one that may not come.

        Log-probabilities are edited, not logits, as transformers does.
        """
        scores = self.edited(log_softmax(logits))
        return log_softmax(scores) if self._renormalised else scores

    @property
    def _weighs(self) -> bool:
        """Whether tokens get other scores than their logits."""
        return self._penalties is not None or self._bias_ids.size > 0


def sample(logits: NDArray[np.float32], rows: Sequence[SamplingRow]) -> list[Choice]:
    """Chooses a token for each row.

    A row's choice depends on its own logits and rules alone, bit for bit. The caller hands each
    choice back by `SamplingRow.accept`.

    Args:
        logits: `[rows, vocab]` float32; left as they are.
    """
    best = logits.argmax(axis=1)
    # NaN is the largest of a row that has one, and +inf of one without; -inf is the smallest.
    finite = np.isfinite(logits[np.arange(len(rows)), best]) & np.isfinite(logits.min(axis=1))
    return [
        _choice(row, logits[index], int(best[index]))
        if finite[index]
        else Choice(token_id=-1, finite=False)
        for index, row in enumerate(rows)
    ]


def _choice(row: SamplingRow, logits: NDArray[np.float32], best: int) -> Choice:
    token_id = best if row.settles_for(best) else row.choose(logits)
    if not row.output.logprobs:
        return Choice(token_id)
    return Choice(token_id, token_logprob(logits, token_id, row.output.top_logprobs))


def _penalised(sampling: Sampling) -> bool:
    return (
        sampling.repetition_penalty != 1
        or sampling.presence_penalty != 0
        or sampling.frequency_penalty != 0
    )
