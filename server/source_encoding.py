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

    What a source's row holds is a function of its tokens alone, whoever shares its batch: the gate
    demands that of a graph bit for bit, on the CPU where it is built. What was kept of an earlier
    request is therefore what would have been computed; copies that fail cost the time of computing
    it again, or the one request.
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
        try:
            if not self._known.restore(generation.request, self._rows(generation)):
                return False
        except Exception:
            _log.exception("a kept source could not be copied and is encoded again")
            return False
        self._scheduler.start(generation.group)
        generation.cached_tokens = len(generation.request.source)
        self._journal.record(Did.REUSE, generation.ticket, span=(0, generation.cached_tokens))
        return True

    def _encode(self, generations: Sequence[Generation]) -> dict[Generation, ServerError]:
        """Encodes sources and starts their requests; the errors of those that have failed.

        Raises:
            EngineDead: every request failed, and the model cannot run at all.
        """
        began = time.monotonic()
        failed = self._encode_carefully(generations)
        tokens = sum(len(generation.request.source) for generation in generations)
        self._journal.ran("encode", began, sequences=len(generations), tokens=tokens)
        self._journal.record(Did.ENCODE, *(generation.ticket for generation in generations))
        if len(failed) == len(generations):
            check_model(self._runner, len(self._scheduler.running))
        return failed

    def _encode_carefully(self, generations: Sequence[Generation]) -> dict[Generation, ServerError]:
        """Encodes sources as one batch; where it fails as a whole, each alone."""
        try:
            self._runner.encode([generation.request.source for generation in generations])
        except Exception:
            _log.exception("sources failed and are encoded one by one", sources=len(generations))
            errors = [self._encode_alone(generation) for generation in generations]
        else:
            errors = [
                self._start(generation, index) for index, generation in enumerate(generations)
            ]
        return {
            generation: error
            for generation, error in zip(generations, errors, strict=True)
            if error is not None
        }

    def _encode_alone(self, generation: Generation) -> ServerError | None:
        """Encodes one source and starts its request; the error if that has failed."""
        source = generation.request.source
        try:
            self._runner.encode([source])
        except Exception as error:
            _log.exception("a source failed alone", tokens=len(source))
            return step_error(error)
        return self._start(generation, 0)

    def _start(self, generation: Generation, index: int) -> ServerError | None:
        """Starts a request whose source is the one of that index in what was encoded last; the
        error if that has failed.
        """
        rows = self._rows(generation)
        try:
            for row in rows:
                self._runner.place(index, row)
        except Exception as error:
            _log.exception("an encoded source could not be copied to its rows")
            return step_error(error)
        self._scheduler.start(generation.group)
        self._keep(generation, rows[0])
        return None

    def _keep(self, generation: Generation, row: int) -> None:
        """Keeps a source for later requests; this one needs nothing of that."""
        try:
            self._known.keep(generation.request, row)
        except Exception:
            _log.exception("an encoded source could not be kept")

    def _rows(self, generation: Generation) -> range:
        """Where a request runs once it is started: its source is copied there before."""
        return self._scheduler.next_rows(generation.group)
