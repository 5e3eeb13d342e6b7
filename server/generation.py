"""A request while it is generated: its completions, and when things happened to it."""

from __future__ import annotations

from collections.abc import Sequence

from server.completion import Completion
from server.request import (
    Chunk,
    DeliverGeneration,
    Finished,
    GenerationEvent,
    GenerationRequest,
    Summary,
    Ticket,
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
    request: GenerationRequest, tokenizer: Tokenizer, vocabulary_size: int, capacity: int
) -> list[Stream]:
    """One stream for each completion that a request asks for.

    Raises:
        InvalidInput: the sampling does not fit the vocabulary.
    """
    room = capacity - len(request.prompt)
    return [
        Stream(
            index,
            SamplingRow(
                request.sampling,
                request.stopping,
                request.output,
                request.prompt,
                index,
                vocabulary_size,
            ),
            Completion(tokenizer, request.stopping, room),
        )
        for index in range(request.n)
    ]


class Generation:
    """One request from arrival to its end. Times are seconds on the monotonic clock.

    Attributes:
        ticket: the handle that the services know.
        group: the scheduler's view of it, with the ticket as its key.
        began_at: when its prefill began; None while it waits.
        first_token_at: when its first token was there; None before.
    """

    def __init__(
        self,
        request: GenerationRequest,
        deliver: DeliverGeneration,
        streams: Sequence[Stream],
        deadline: float,
        now: float,
    ) -> None:
        self.ticket = Ticket()
        self.request = request
        self.deliver = deliver
        self.streams = streams
        self.group = SequenceGroup(self.ticket, len(request.prompt), request.n, deadline)
        self.submitted_at = now
        self.began_at: float | None = None
        self.first_token_at: float | None = None

    @property
    def generated_tokens(self) -> int:
        """Tokens of all completions together."""
        return sum(stream.completion.count for stream in self.streams)

    @property
    def complete(self) -> bool:
        """Whether every completion has ended."""
        return all(stream.finished for stream in self.streams)

    def summary(self, now: float) -> Summary:
        """What there is to tell at the end of a request that succeeded."""
        began = now if self.began_at is None else self.began_at
        first_token = now if self.first_token_at is None else self.first_token_at
        return Summary(
            prompt_tokens=len(self.request.prompt),
            completion_tokens=self.generated_tokens,
            cached_tokens=0,
            queue_seconds=began - self.submitted_at,
            prefill_seconds=first_token - began,
            decode_seconds=now - first_token,
            time_to_first_token_seconds=first_token - self.submitted_at,
        )
