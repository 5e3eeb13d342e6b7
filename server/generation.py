"""A request while it is generated: its completions, and when things happened to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from server.beam_completions import BeamCompletions
from server.completion import Completion
from server.logprobs import prompt_logprobs
from server.request import (
    Chunk,
    DeliverGeneration,
    Finished,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Summary,
    Ticket,
    TokenLogprob,
)
from server.sampler import Choice, SamplingRow
from server.scheduler import SequenceGroup
from server.tokenizer import Tokenizer


class Stream:
    """One completion: how its next token is chosen, its text, and its latest token.

    Attributes:
        last_token_at: seconds on the monotonic clock; None before the first token.
    """

    def __init__(self, index: int, sampling: SamplingRow, completion: Completion) -> None:
        self.index = index
        self.sampling = sampling
        self.completion = completion
        self.last_token = -1
        self.last_token_at: float | None = None
        self.finished = False

    def accept(self, choice: Choice, now: float) -> list[GenerationEvent]:
        """Adds the next token; what there is to tell of it."""
        self.last_token = choice.token_id
        self.last_token_at = now
        self.sampling.accept(choice.token_id)
        step = self.completion.accept(choice.token_id)
        logprobs = () if choice.logprob is None else (choice.logprob,)
        events: list[GenerationEvent] = [Chunk(self.index, step.text, (choice.token_id,), logprobs)]
        if step.reason is not None:
            self.finished = True
            events.append(Finished(self.index, step.reason, step.stop_sequence))
        return events


def make_streams(
    request: GenerationRequest, tokenizer: Tokenizer, vocabulary_size: int, room: int
) -> list[Stream]:
    """One stream for each completion that a request asks for.

    `room` is how many tokens the cache can still take in each row.

    Raises:
        InvalidInput: the sampling does not fit the vocabulary.
    """
    return [
        Stream(
            index,
            SamplingRow(request, index, vocabulary_size, room),
            Completion(tokenizer, request.stopping, room),
        )
        for index in range(request.n)
    ]


class Generation:
    """One request from arrival to its end. Times are seconds on the monotonic clock.

    Attributes:
        ticket: the handle that the services know.
        group: the scheduler's view of it, with the ticket as its key.
        beams: the search, of a request that searches; such a one has no streams.
        scores_only: whether it ends with its prompt, so that no token may be generated.
        cached_tokens: of its prompt or source, what did not have to be computed.
        prompt_logprobs: those computed so far, where they are asked for.
        began_at: when its prompt or source began to be computed; None while it waits.
        first_token_at: when its first token was there; None before.

    Raises:
        InvalidInput: the sampling does not fit the vocabulary.
    """

    def __init__(
        self,
        request: GenerationRequest,
        deliver: DeliverGeneration,
        tokenizer: Tokenizer,
        vocabulary_size: int,
        capacity: int,
        deadline: float,
        now: float,
    ) -> None:
        self.ticket = Ticket()
        self.request = request
        self.deliver = deliver
        room = capacity - len(request.prompt)
        self.streams: list[Stream] = []
        self.beams: BeamCompletions | None = None
        if request.beam is None:
            self.streams = make_streams(request, tokenizer, vocabulary_size, room)
        else:
            self.beams = BeamCompletions(request, request.beam, tokenizer, vocabulary_size, room)
        self.scores_only = request.stopping.max_new_tokens == 0
        self.group = SequenceGroup(
            self.ticket, len(request.prompt), request.rows, deadline, len(request.source)
        )
        self.cached_tokens = 0
        self.prompt_logprobs: list[TokenLogprob] = []
        self.submitted_at = now
        self.began_at: float | None = None
        self.first_token_at: float | None = None

    @property
    def generated_tokens(self) -> int:
        """Tokens of all completions together."""
        if self.beams is not None:
            return self.beams.count
        return sum(stream.completion.count for stream in self.streams)

    @property
    def complete(self) -> bool:
        """Whether every completion has ended."""
        if self.beams is not None:
            return self.beams.done
        return all(stream.finished for stream in self.streams)

    def next_token(self, index: int, position: int) -> int:
        """The token of one of its sequences that is to be computed next, at that position."""
        if position < len(self.request.prompt):
            return self.request.prompt[position]
        if self.beams is not None:
            return self.beams.last_token(index)
        return self.streams[index].last_token

    def score_prompt(self, start: int, logits: NDArray[np.float32]) -> None:
        """Adds the log-probabilities of the prompt's tokens that follow some of it.

        Args:
            logits: `[tokens, vocab]` float32, of each token from position `start` on.

        Raises:
            NonFinite: they hold NaN or infinity.
        """
        following = self.request.prompt[start + 1 : start + 1 + len(logits)]
        self.prompt_logprobs += prompt_logprobs(
            logits[: len(following)], following, self.request.output.top_logprobs
        )

    def empty_completions(self) -> list[GenerationEvent]:
        """What there is to tell where no token may be generated."""
        return [Finished(index, FinishReason.LENGTH) for index in range(self.request.n)]

    def summary(self, now: float) -> Summary:
        """What there is to tell at the end of a request that succeeded."""
        began = now if self.began_at is None else self.began_at
        first_token = now if self.first_token_at is None else self.first_token_at
        return Summary(
            prompt_tokens=self.request.input_tokens,
            completion_tokens=self.generated_tokens,
            cached_tokens=self.cached_tokens,
            queue_seconds=began - self.submitted_at,
            prefill_seconds=first_token - began,
            decode_seconds=now - first_token,
            time_to_first_token_seconds=first_token - self.submitted_at,
            prompt_logprobs=tuple(self.prompt_logprobs),
        )
