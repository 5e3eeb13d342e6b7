"""How the requests of an encoder-decoder begin: their sources are encoded, several at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog

from server.beginning import Begun, LetIn
from server.careful_steps import check_model
from server.decoder_journal import DecoderJournal
from server.errors import ServerError
from server.generation import Generation
from server.runner import SourceRunner
from server.scheduler import Scheduler
from server.session import step_error
from server.source_cache import SourceCache
from server.trace import Did

_log = structlog.get_logger()


class SourceEncoding:
    """Encodes the sources of requests that it lets in, and copies each to all rows of its request.

    What a source's row holds is a function of its tokens alone: what was kept of an earlier request
    is, bit for bit, what would have been computed.
    """

    def __init__(
        self,
        runner: SourceRunner,
        known: SourceCache,
        scheduler: Scheduler,
        journal: DecoderJournal,
        let_in: LetIn,
    ) -> None:
        self._runner = runner
        self._known = known
        self._scheduler = scheduler
        self._journal = journal
        self._let_in = let_in

    def advance(self) -> Begun:
        """Encodes at most one batch; no row has read its prompt by then.

        Raises:
            EngineDead: the model cannot run at all.
        """
        arrivals = [self._let_in(group) for group in self._scheduler.next_sources()]
        unknown = [generation for generation in arrivals if not self._restore(generation)]
        return Begun(failed=self._encode(unknown)) if unknown else Begun()

    def _restore(self, generation: Generation) -> bool:
        """Starts a request whose source was kept; whether it was."""
        memory = self._known.find(generation.request)
        if memory is None:
            return False
        for row in self._scheduler.start(generation.group):
            self._runner.restore_memory(memory, row)
        generation.cached_tokens = len(generation.request.source)
        self._journal.record(Did.REUSE, generation.ticket, span=(0, generation.cached_tokens))
        return True

    def _encode(self, generations: Sequence[Generation]) -> dict[Generation, ServerError]:
        """Encodes sources and starts their requests; the errors of those that have failed."""
        began = time.monotonic()
        failed = self._encode_carefully(generations)
        tokens = sum(len(generation.request.source) for generation in generations)
        self._journal.ran("encode", began, sequences=len(generations), tokens=tokens)
        self._journal.record(Did.ENCODE, *(generation.ticket for generation in generations))
        return failed

    def _encode_carefully(self, generations: Sequence[Generation]) -> dict[Generation, ServerError]:
        """Encodes sources as one batch; where it fails as a whole, each alone.

        Raises:
            EngineDead: every source failed, and the model cannot run at all.
        """
        try:
            self._runner.encode([generation.request.source for generation in generations])
        except Exception:
            _log.exception("sources failed and are encoded one by one", sources=len(generations))
            return self._encode_one_by_one(generations)
        for index, generation in enumerate(generations):
            self._start(generation, index)
        return {}

    def _encode_one_by_one(
        self, generations: Sequence[Generation]
    ) -> dict[Generation, ServerError]:
        failed: dict[Generation, ServerError] = {}
        for generation in generations:
            source = generation.request.source
            try:
                self._runner.encode([source])
            except Exception as error:
                _log.exception("a source failed alone", tokens=len(source))
                failed[generation] = step_error(error)
            else:
                self._start(generation, 0)
        if len(failed) == len(generations):
            check_model(self._runner, len(self._scheduler.running))
        return failed

    def _start(self, generation: Generation, index: int) -> None:
        """Starts a request whose source is the one of that index in what was encoded last."""
        rows = self._scheduler.start(generation.group)
        for row in rows:
            self._runner.place(index, row)
        self._known.keep(generation.request, rows[0])
