"""A call to embed, while its texts are encoded, perhaps in several batches."""

from __future__ import annotations

from collections.abc import Sequence

from server.request import DeliverEmbedding, EmbedItem, EmbedOutcome, EmbedResult, Ticket


class EmbedCall:
    """One call from arrival to its end. Times are seconds on the monotonic clock.

    Attributes:
        tokens: of all its texts.
        waiting: how many of its texts are in the queue.
        began_at: when the first of its texts began to compute; None while all wait.
    """

    def __init__(
        self,
        items: Sequence[EmbedItem],
        deliver: DeliverEmbedding,
        deadline: float,
        now: float,
    ) -> None:
        self.ticket = Ticket()
        self.items = items
        self.deliver = deliver
        self.deadline = deadline
        self.submitted_at = now
        self.tokens = sum(len(item.ids) for item in items)
        self.waiting = len(items)
        self.began_at: float | None = None
        self.results: list[EmbedResult | None] = [None] * len(items)

    def outcome(self, now: float) -> EmbedOutcome | None:
        """All results; None while one is missing."""
        results = tuple(result for result in self.results if result is not None)
        if len(results) < len(self.items):
            return None
        began = now if self.began_at is None else self.began_at
        return EmbedOutcome(results, began - self.submitted_at, now - began)
