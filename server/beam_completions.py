"""The completions of a request that searches: the best few hypotheses of its beams."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from server.beam import BeamSearch
from server.completion import Completion
from server.hypothesis import Hypothesis
from server.logprobs import token_logprob
from server.request import Beam, GenerationEvent, GenerationRequest
from server.sampler import SamplingRow
from server.tokenizer import Tokenizer


class BeamCompletions:
    """One request's beam search over the logits of its rows.

    Nothing can be told of a completion before the search has ended.

    Raises:
        InvalidInput: the sampling does not fit the vocabulary.
    """

    def __init__(
        self,
        request: GenerationRequest,
        beam: Beam,
        tokenizer: Tokenizer,
        vocabulary_size: int,
        room: int,
    ) -> None:
        """`room` is how many tokens the cache can still take in each row."""
        self._n = request.n
        self._output = request.output
        sampling = SamplingRow(request, 0, vocabulary_size, room)
        beginning = Hypothesis(sampling, Completion(tokenizer, request.stopping, room))
        ends = {*request.stopping.eos_ids, *request.stopping.stop_token_ids}
        self._search = BeamSearch(beginning, beam.width, beam.length_penalty, len(ends))

    @property
    def done(self) -> bool:
        """Whether the search has ended."""
        return self._search.done

    @property
    def count(self) -> int:
        """The tokens of all completions together; none before the search has ended."""
        return sum(len(hypothesis.token_ids) for hypothesis in self._best())

    def last_token(self, slot: int) -> int:
        """The token of a slot's hypothesis that is to be computed next."""
        return self._search.running[slot].token_ids[-1]

    def extend(self, logits: NDArray[np.float32]) -> list[int]:
        """Adds a token to every beam.

        Args:
            logits: `[width, vocab]` float32, finite; row i is of slot i.

        Returns:
            For each slot the one that it continues, as `BeamSearch.step`.
        """
        scores = np.stack(
            [
                hypothesis.sampling.beam_scores(row)
                for hypothesis, row in zip(self._search.running, logits, strict=True)
            ]
        )

        def longer(slot: int, token_id: int) -> Hypothesis:
            logprob = (
                token_logprob(logits[slot], token_id, self._output.top_logprobs)
                if self._output.logprobs
                else None
            )
            return self._search.running[slot].extended(token_id, logprob)

        return self._search.step(scores, longer)

    def events(self) -> list[GenerationEvent]:
        """All that there is to tell, once the search has ended: a chunk and an end for each."""
        return [
            event
            for index, hypothesis in enumerate(self._best())
            for event in hypothesis.events(index)
        ]

    def _best(self) -> list[Hypothesis]:
        if not self.done:
            return []
        return [hypothesis for _, hypothesis in self._search.finished[: self._n]]
