"""Penalties for tokens that a completion has seen: repetition, presence and frequency."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from server.request import Sampling

_LARGEST = np.finfo(np.float32).max
_FIRST_ROOM = 64


class Penalties:
    """The tokens of one completion, counted, and what they cost.

    Sparse: one entry a distinct token, whatever the vocabulary. Tokens of the prompt are entries
    of count zero, which only the repetition penalty heeds.
    """

    def __init__(self, sampling: Sampling, prompt_ids: Sequence[int], vocabulary_size: int) -> None:
        self._sampling = sampling
        prompt: Sequence[int] = prompt_ids if sampling.repetition_penalty != 1 else ()
        # A prompt may hold ids that the head has no logit for: such a token cannot be repeated.
        distinct = sorted({token for token in prompt if token < vocabulary_size})
        self._entries = {token: entry for entry, token in enumerate(distinct)}
        room = len(distinct) + _FIRST_ROOM
        self._ids = np.zeros(room, np.int64)
        self._counts = np.zeros(room, np.float32)
        self._ids[: len(distinct)] = distinct

    def count(self, token_id: int) -> None:
        """Adds one generated token."""
        entry = self._entries.setdefault(token_id, len(self._entries))
        if entry == len(self._ids):
            self._ids = np.concatenate((self._ids, np.zeros_like(self._ids)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._ids[entry] = token_id
        self._counts[entry] += 1

    def fork(self) -> Penalties:
        """One that goes on counting from here by itself."""
        other = copy.copy(self)
        other._entries = dict(self._entries)
        other._ids, other._counts = self._ids.copy(), self._counts.copy()
        return other

    def apply(self, scores: NDArray[np.float32]) -> None:
        """Changes the scores `[vocab]` of the counted tokens, in place.

        The repetition penalty (Keskar et al. 2019, "CTRL", section 4.1, for either sign of the
        score) divides a positive score and multiplies a negative one; presence and frequency
        are subtracted, once and once an occurrence, as OpenAI's API defines them.
        """
        sampling, size = self._sampling, len(self._entries)
        ids, counts = self._ids[:size], self._counts[:size]
        seen = scores[ids]
        with np.errstate(over="ignore"):
            penalty = np.float32(sampling.repetition_penalty)
            seen = np.where(seen < 0, seen * penalty, seen / penalty)
            seen -= np.float32(sampling.presence_penalty) * (counts > 0)
            seen -= np.float32(sampling.frequency_penalty) * counts
        # A tiny penalty can divide beyond float32; the largest number orders just as infinity.
        scores[ids] = np.clip(seen, -_LARGEST, _LARGEST)
