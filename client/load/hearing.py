"""What a caller has heard of an answer so far, in whichever way it comes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from client.load.answer import Answer, Vectors, Written
from client.results import Chunk, Embeddings, Event, Finished, FinishReason, Generation, Summary


@dataclass
class Hearing:
    """Takes an answer, whole or event by event.

    Attributes:
        request_id: the one that came with the answer's end; None before.
        first_token_at: on the clock of `time.perf_counter`.
        disorder: what was said more than once, or after the end; empty where nothing was.
    """

    request_id: str | None = None
    first_token_at: float | None = None
    disorder: str = ""
    _vectors: Vectors | None = None
    _texts: list[str] = field(default_factory=list)
    _token_ids: list[int] = field(default_factory=list)
    _finish_reason: FinishReason | None = None

    @property
    def answer(self) -> Answer | None:
        """The answer as far as it has come; None before anything has."""
        if self._vectors is not None:
            return self._vectors
        if not self._texts:
            return None
        return Written("".join(self._texts), tuple(self._token_ids), self._finish_reason)

    def embeddings(self, result: Embeddings) -> None:
        """Takes the answer of `embed`.

        Raises:
            CallFailed: one of its items failed.
        """
        self.request_id = result.request_id
        self._vectors = Vectors(tuple(result.vectors))

    def generation(self, result: Generation) -> None:
        """Takes the answer of `generate`."""
        for completion in result.completions:
            self.event(Chunk(completion.index, completion.text, completion.token_ids))
            self.event(Finished(completion.index, completion.finish_reason))
        self.event(result.summary)

    def event(self, event: Event) -> None:
        """Takes one event of a stream of one completion."""
        if self.request_id is not None:
            self._complain(f"{type(event).__name__} after the summary")
        match event:
            case Chunk(text=text, token_ids=token_ids):
                if self._finish_reason is not None:
                    self._complain("a chunk after the end")
                if self.first_token_at is None:
                    self.first_token_at = time.perf_counter()
                self._texts.append(text)
                self._token_ids += token_ids
            case Finished(finish_reason=reason):
                if self._finish_reason is not None:
                    self._complain("a second end")
                self._finish_reason = reason
            case Summary(request_id=request_id):
                self.request_id = request_id

    def _complain(self, what: str) -> None:
        self.disorder = self.disorder or what
