"""How the requests of a decoder begin: their prompts are computed, one chunk at a time."""

from __future__ import annotations

import time

import numpy as np
import structlog

from server.beginning import Begun, LetIn
from server.careful_steps import check_model
from server.decoder_journal import DecoderJournal
from server.errors import ServerError
from server.generation import Generation
from server.prefix_store import PrefixStore
from server.runner import Logits, PromptRunner
from server.scheduler import PrefillChunk, Scheduler
from server.session import step_error
from server.trace import Did

_log = structlog.get_logger()


class PromptPrefill:
    """Computes chunks of prompts, behind what is known of their beginnings."""

    def __init__(
        self,
        runner: PromptRunner,
        prefixes: PrefixStore,
        scheduler: Scheduler,
        journal: DecoderJournal,
        let_in: LetIn,
    ) -> None:
        self._runner = runner
        self._prefixes = prefixes
        self._scheduler = scheduler
        self._journal = journal
        self._let_in = let_in
        self._generation: Generation  # whose prompt is being computed

    def advance(self) -> Begun:
        """Computes at most one chunk.

        Raises:
            EngineDead: the model cannot run at all.
        """
        chunk = self._scheduler.next_chunk()
        if chunk is None:
            return Begun()
        if chunk.start == 0:
            self._generation = self._let_in(chunk.group)
            chunk = self._skip_known(self._generation, chunk)
        return self._prefill(self._generation, chunk)

    def _skip_known(self, generation: Generation, chunk: PrefillChunk) -> PrefillChunk:
        """The chunk to compute first, behind what is known of the prompt."""
        reused = self._prefixes.restore(generation.request, chunk.row)
        if not reused:
            return chunk
        generation.cached_tokens = reused
        self._journal.record(Did.REUSE, generation.ticket, span=(0, reused))
        return self._scheduler.skip(chunk, reused)

    def _prefill(self, generation: Generation, chunk: PrefillChunk) -> Begun:
        try:
            logits = self._compute(generation, chunk)
        except ServerError as error:
            return Begun(failed={generation: error})
        self._prefixes.keep(generation.request, chunk.row, chunk.start, chunk.end)
        moves = self._scheduler.complete_chunk(chunk)
        if not chunk.last:
            return Begun()
        rows = self._scheduler.running[-chunk.group.n :]
        return Begun(moves=moves, rows=rows, logits=np.repeat(logits, len(rows), axis=0))

    def _compute(self, generation: Generation, chunk: PrefillChunk) -> Logits:
        """The logits of a prompt's last token, `[1, vocab]`; before the last chunk, nothing of use.

        Raises:
            StepFailed, OverLimit, NonFinite: the request has failed.
        """
        if generation.request.output.prompt_logprobs:
            logits = self._run(generation, chunk, chunk.end - chunk.start)
            generation.score_prompt(chunk.start, logits)
            if not chunk.last or generation.scores_only:
                return logits[-1:]
        # A last chunk whose tokens are scored is run once more, for the last token alone: for one
        # row the output head takes another kernel than for many, and what is reported must not
        # change what is generated.
        return self._run(generation, chunk, int(chunk.last))

    def _run(self, generation: Generation, chunk: PrefillChunk, logits: int) -> Logits:
        began = time.monotonic()
        computed = self._run_twice(generation, chunk, logits)
        self._journal.ran("prefill", began, sequences=1, tokens=chunk.end - chunk.start)
        self._journal.record(Did.PREFILL, generation.ticket, span=(chunk.start, chunk.end))
        return computed

    def _run_twice(self, generation: Generation, chunk: PrefillChunk, logits: int) -> Logits:
        """Computes a chunk, and once more if it fails.

        Raises:
            StepFailed, OverLimit: it failed again; the row holds nothing of use.
            EngineDead: the model cannot run at all.
        """
        row, start = chunk.row, chunk.start
        ids = generation.request.prompt[start : chunk.end]
        try:
            return self._runner.prefill(row, ids, start, logits=logits)
        except Exception:
            _log.exception("a prefill chunk failed and is computed again", row=row)
        try:
            return self._runner.prefill(row, ids, start, logits=logits)
        except Exception as error:
            _log.exception("a prefill chunk failed again", row=row)
            check_model(self._runner, row)
            raise step_error(error) from error
