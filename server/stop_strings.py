"""Finds stop strings in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until a stop string is complete, never sending what may become part of one.

    The text ends before the match that starts earliest among those that are complete when the
    first of them is; of matches that start together the shortest counts, because it was complete
    first.
    """

    def __init__(self, stops: Sequence[str], include_stop: bool) -> None:
        self._stops = sorted(set(stops), key=len)
        self._beginnings = {stop[:length] for stop in stops for length in range(1, len(stop))}
        self._longest = max(map(len, self._stops), default=1) - 1  # of the beginnings
        self._include_stop = include_stop
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """Adds text; what may be sent now, and the stop string that ends the text, if any."""
        text = self._held + text
        if (match := self._first_match(text)) is not None:
            start, stop = match
            self._held = ""
            return text[: start + len(stop) if self._include_stop else start], stop
        sendable = len(text) - self._unfinished(text)
        self._held = text[sendable:]
        return text[:sendable], None

    def flush(self) -> str:
        """The text held back, once it is certain that no more will come."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[int, str] | None:
        matches = [(text.find(stop), stop) for stop in self._stops]
        # The minimum over starts is the first of equal ones, which is the shortest.
        return min((match for match in matches if match[0] >= 0), key=lambda m: m[0], default=None)

    def _unfinished(self, text: str) -> int:
        """Length of the longest suffix that begins a stop string."""
        for length in range(min(self._longest, len(text)), 0, -1):
            if text[-length:] in self._beginnings:
                return length
        return 0
