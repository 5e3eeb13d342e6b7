"""One completion: its text as it grows, and when and why it ends."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from server.detokenizer import Detokenizer
from server.request import FinishReason, Stopping
from server.stop_strings import StopMatcher
from server.tokenizer import Tokenizer


@dataclass(frozen=True)
class Step:
    """What one token adds.

    Attributes:
        text: what may be sent now; the texts of all steps, joined, are the completion's.
        reason: set with the last token.
        stop_sequence: the stop string that ended the text; empty without one.
    """

    text: str
    reason: FinishReason | None = None
    stop_sequence: str = ""


class Completion:
    """Follows one completion token by token.

    The text is one decode of all its tokens, up to the first stop string. A token that ends the
    completion has no text. Where several ends coincide, the reason is the first in the text: a
    stop string, then the token, then the length.

    Stop strings are looked for only in the text after the first `min_new_tokens` tokens; the end
    tokens are the sampler's to withhold until then.

    Attributes:
        limit: the most tokens that it can have.
        count: the tokens that it has.
    """

    def __init__(self, tokenizer: Tokenizer, stopping: Stopping, room: int) -> None:
        """`room` is how many tokens the cache can still take."""
        self.limit = min(stopping.max_new_tokens, room)
        self.count = 0
        self._stopping = stopping
        self._detokenizer = Detokenizer(tokenizer)
        self._matcher = StopMatcher(stopping.stop, stopping.include_stop)

    def accept(self, token_id: int) -> Step:
        """Adds the next token."""
        self.count += 1
        if token_id in self._stopping.eos_ids:
            return self._finish("", FinishReason.EOS)
        if token_id in self._stopping.stop_token_ids:
            return self._finish("", FinishReason.STOP)
        text = self._detokenizer.push(token_id)
        if self.count >= self.limit:
            return self._finish(text, FinishReason.LENGTH)
        if self.count <= self._stopping.min_new_tokens:
            return Step(text)
        return self._send(text)

    def fork(self) -> Completion:
        """One that goes on from here by itself."""
        other = copy.copy(self)
        other._detokenizer = self._detokenizer.fork()
        other._matcher = copy.copy(self._matcher)
        return other

    def _finish(self, text: str, reason: FinishReason) -> Step:
        """The last step, of `text` and all that was held back."""
        text += self._detokenizer.finish()
        if self.count <= self._stopping.min_new_tokens:
            return Step(text, reason)
        step = self._send(text)
        return step if step.reason else Step(step.text + self._matcher.flush(), reason)

    def _send(self, text: str) -> Step:
        sendable, stop = self._matcher.push(text)
        return Step(sendable) if stop is None else Step(sendable, FinishReason.STOP, stop)
