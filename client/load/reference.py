"""The answer to each question, taken alone: what every answer under load is judged by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from client.aio import AsyncClient
from client.load.answer import Answer
from client.load.attempt import Attempt, End
from client.load.call import carry_out
from client.load.profile import Kind
from client.load.question import EmbedQuestion, Question


@dataclass(frozen=True)
class Reference:
    """A question and its answer."""

    question: Question
    answer: Answer

    def answers(self, kind: Kind) -> bool:
        """Whether this is what a call of that kind asks."""
        return isinstance(self.question, EmbedQuestion) == (kind is Kind.EMBED)


async def take_references(client: AsyncClient, questions: Iterable[Question]) -> list[Reference]:
    """Asks one question after the other; on a server without other callers each runs alone.

    Raises:
        CallFailed: one of them is not answered.
    """
    return [
        Reference(question, await _ask(client, question, f"reference-{index}"))
        for index, question in enumerate(questions)
    ]


async def _ask(client: AsyncClient, question: Question, request_id: str) -> Answer:
    kind = Kind.EMBED if isinstance(question, EmbedQuestion) else Kind.GENERATE
    outcome = await carry_out(Attempt(request_id, kind, question), client)
    if outcome.failure is not None:
        raise outcome.failure
    assert outcome.end is End.ANSWERED
    assert outcome.answer is not None
    return outcome.answer
