"""One way to continue a prompt, while a beam search weighs it against others."""

from __future__ import annotations

from dataclasses import dataclass

from server.completion import Completion, Step
from server.request import Chunk, Finished, GenerationEvent, TokenLogprob
from server.sampler import SamplingRow


@dataclass(frozen=True)
class Hypothesis:
    """The tokens of one beam, what they say, and the rules for the next.

    Attributes:
        sampling: of its own past; never changed once it is here.
        completion: of its own past; never changed once it is here.
        last: what the last token added; None before the first.
    """

    sampling: SamplingRow
    completion: Completion
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    text: str = ""
    last: Step | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing may follow."""
        return self.last is not None and self.last.reason is not None

    def extended(self, token_id: int, logprob: TokenLogprob | None) -> Hypothesis:
        """This one and a token more; it stays as it is."""
        sampling, completion = self.sampling.fork(), self.completion.fork()
        sampling.accept(token_id)
        step = completion.accept(token_id)
        return Hypothesis(
            sampling,
            completion,
            (*self.token_ids, token_id),
            self.logprobs if logprob is None else (*self.logprobs, logprob),
            self.text + step.text,
            step,
        )

    def events(self, index: int) -> list[GenerationEvent]:
        """All that there is to tell of it as completion `index`, once it has ended."""
        assert self.last is not None, "it has no token"
        assert self.last.reason is not None, "it has not ended"
        return [
            Chunk(index, self.text, self.token_ids, self.logprobs),
            Finished(index, self.last.reason, self.last.stop_sequence),
        ]
