"""The requests that were accepted and have not ended: each waits, runs, and ends once."""

from __future__ import annotations

import time
from collections.abc import Iterator

from server.decoder_journal import DecoderJournal
from server.errors import ServerError
from server.generation import Generation
from server.outbox import Outbox
from server.request import Failed, GenerationEvent, Ticket
from server.scheduler import SequenceGroup
from server.waiting_room import WaitingRoom


class LiveRequests:
    """Who is told what, and who still has a place in the waiting room.

    Whatever a method ends is gone from here; its rows are the scheduler's business.
    """

    def __init__(self, waiting_room: WaitingRoom, outbox: Outbox, journal: DecoderJournal) -> None:
        self._waiting_room = waiting_room
        self._outbox = outbox
        self._journal = journal
        self._live: dict[object, Generation] = {}

    def __contains__(self, group: SequenceGroup) -> bool:
        """Whether the request of a group has not ended."""
        return group.key in self._live

    def __iter__(self) -> Iterator[Generation]:
        return iter(list(self._live.values()))

    def of(self, group: SequenceGroup) -> Generation:
        """The request of a group."""
        return self._live[group.key]

    def find(self, ticket: Ticket) -> Generation | None:
        """The request with that ticket; None once it has ended."""
        return self._live.get(ticket)

    def accept(self, generation: Generation) -> None:
        """Takes a request that has a place in the waiting room."""
        self._live[generation.ticket] = generation
        self._journal.accepted(generation)

    def let_in(self, group: SequenceGroup) -> Generation:
        """The request of a group that has been admitted: it waits no more."""
        generation = self.of(group)
        self._leave_queue(generation)
        generation.began_at = time.monotonic()
        return generation

    def tell(self, generation: Generation, *events: GenerationEvent) -> None:
        """Has events delivered."""
        for event in events:
            self._outbox.add(generation.ticket, generation.deliver, event)

    def note_first_token(self, generation: Generation, now: float) -> None:
        """Records when a request got its first token, if it had none."""
        if generation.first_token_at is None:
            generation.first_token_at = now
            self._journal.first_token(now - generation.submitted_at)

    def succeed(self, generation: Generation, now: float) -> None:
        """Ends a request that has all it asked for."""
        self._journal.succeeded(generation)
        self.tell(generation, generation.summary(now))
        self._remove(generation)

    def fail(self, generation: Generation, error: ServerError) -> None:
        """Ends a request with an error."""
        self._journal.failed(generation, error)
        self.tell(generation, Failed(error))
        self._remove(generation)

    def forget(self, generation: Generation) -> None:
        """Ends a request whose caller has gone."""
        self._journal.cancelled(generation)
        self._remove(generation)

    def abandon(self, generation: Generation, error: ServerError) -> None:
        """Ends a request with an error that is none of its own."""
        self.tell(generation, Failed(error))
        self._remove(generation)

    def _remove(self, generation: Generation) -> None:
        self._leave_queue(generation)
        del self._live[generation.ticket]

    def _leave_queue(self, generation: Generation) -> None:
        """Gives the request's place in the waiting room back, if it still has one."""
        if generation.began_at is None:
            self._waiting_room.leave(generation.request.input_tokens)
