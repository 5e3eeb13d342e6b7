"""Which texts are encoded together: the head of the queue, and others of similar length.

Plain data, like the scheduler: no arrays, clock or I/O.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

_SIMILAR_RATIO = 2  # of two texts of one batch, the longer has at most so many times the tokens
_SIMILAR_TOKENS = 16  # or at most so many tokens more: short texts go together anyway


@dataclass(eq=False)
class QueuedText:
    """One text that waits.

    Attributes:
        call: the engine's handle of the call that it belongs to.
        index: its place in the call.
        length: its tokens.
        round: in which it is its call's turn.
        overtaken: whether a text that stood behind it was taken before it.
    """

    call: Hashable
    index: int
    length: int
    round: int
    overtaken: bool = False


class TextQueue:
    """Texts in rounds, in each of which every call has a batch, in the order of their arrival.

    So a small call waits for one batch of each call before it, however many texts those have. The
    texts of one call go in the order of their lengths.

    A batch is the head of the queue and, in order, the texts of similar length that fit beside it
    within `max_batch_tokens`, counted as texts x longest. A text that others overtook is a barrier:
    nobody behind it is taken before it, so it is overtaken by one batch at most. A text longer than
    the budget is a batch of its own.
    """

    def __init__(self, max_batch_tokens: int) -> None:
        self._max_batch_tokens = max_batch_tokens
        self._texts: list[QueuedText] = []
        self._tokens = 0
        self._round = 0  # the one that the latest batch began with

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def head(self) -> QueuedText | None:
        """The text that is next."""
        return self._texts[0] if self._texts else None

    @property
    def fills_a_batch(self) -> bool:
        """Whether waiting for more texts would be in vain."""
        return self._tokens >= self._max_batch_tokens

    def add(self, call: Hashable, lengths: Sequence[int]) -> None:
        """Adds the texts of one call, from the next round on."""
        self._texts += self._in_rounds(call, lengths)
        self._texts.sort(key=lambda text: text.round)  # stable: who came first goes first
        self._tokens += sum(lengths)

    def remove(self, call: Hashable) -> int:
        """Removes the texts of a call; how many there were."""
        kept = [text for text in self._texts if text.call != call]
        removed = len(self._texts) - len(kept)
        self._keep(kept)
        return removed

    def take(self) -> list[QueuedText]:
        """The next batch; empty where nothing waits."""
        batch = _Batch(self._max_batch_tokens)
        passed: list[QueuedText] = []
        overtaken = 0  # of those passed, how many stand before the last text that was taken
        for position, text in enumerate(self._texts):
            if batch.add(text):
                overtaken = len(passed)
                continue
            passed.append(text)
            if text.overtaken or batch.full:
                passed += self._texts[position + 1 :]
                break
        for text in passed[:overtaken]:
            text.overtaken = True
        self._keep(passed)
        if batch.texts:
            self._round = batch.texts[0].round
        return batch.texts

    def _in_rounds(self, call: Hashable, lengths: Sequence[int]) -> Iterator[QueuedText]:
        """The texts of a call by length, as many a round as one batch takes."""
        round_, batch = self._round + 1, _Batch(self._max_batch_tokens)
        for index in sorted(range(len(lengths)), key=lengths.__getitem__):
            text = QueuedText(call, index, lengths[index], round_)
            if not batch.add(text):
                round_, batch = round_ + 1, _Batch(self._max_batch_tokens)
                text.round = round_
                batch.add(text)
            yield text

    def _keep(self, texts: list[QueuedText]) -> None:
        self._texts = texts
        self._tokens = sum(text.length for text in texts)


class _Batch:
    """Texts of similar length within a budget of cells."""

    def __init__(self, max_tokens: int) -> None:
        self.texts: list[QueuedText] = []
        self._max_tokens = max_tokens
        self._shortest = 0
        self._longest = 0

    @property
    def full(self) -> bool:
        """Whether no text at all fits any more."""
        return (len(self.texts) + 1) * self._longest > self._max_tokens

    def add(self, text: QueuedText) -> bool:
        """Adds a text if it fits; the first one always does."""
        shortest = min(self._shortest, text.length) if self.texts else text.length
        longest = max(self._longest, text.length)
        similar = longest <= max(_SIMILAR_RATIO * shortest, shortest + _SIMILAR_TOKENS)
        within = (len(self.texts) + 1) * longest <= self._max_tokens
        if self.texts and not (similar and within):
            return False
        self.texts.append(text)
        self._shortest, self._longest = shortest, longest
        return True
