"""Whether a caller got its own answer, whole and once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from client.load.answer import Answer, Written
from client.load.attempt import End, Outcome
from client.load.question import Question
from client.load.reference import Reference


class Wrong(StrEnum):
    """What must never happen to an answer."""

    LOST = "lost"  # it did not come, and nothing excuses that
    DUPLICATED = "duplicated"  # something of it came twice, or after the end
    SWAPPED = "swapped"  # it is another caller's
    CHANGED = "wrong"  # it is not what the question has for an answer


@dataclass(frozen=True)
class Fault:
    """One answer that went wrong."""

    wrong: Wrong
    request_id: str
    detail: str


class Judge:
    """Compares what came with the references."""

    def __init__(self, references: Iterable[Reference]) -> None:
        self._answers = {each.question: each.answer for each in references}

    def fault(self, outcome: Outcome) -> Fault | None:
        """What is wrong with an outcome, None where nothing is.

        Who is refused, or goes, or is too hurried, is not wronged; what such a caller has heard by
        then has to be right all the same.
        """
        found = self._find(outcome)
        return None if found is None else Fault(found[0], outcome.attempt.id, found[1])

    def _find(self, outcome: Outcome) -> tuple[Wrong, str] | None:
        attempt, answer = outcome.attempt, outcome.answer
        if outcome.disorder:
            return Wrong.DUPLICATED, outcome.disorder
        if outcome.end in (End.FAILED, End.UNAVAILABLE):
            return Wrong.LOST, str(outcome.failure)
        if outcome.end is End.ANSWERED and not _whole(outcome):
            return Wrong.LOST, "the answer has no end"
        if outcome.request_id not in (None, attempt.id):
            return Wrong.SWAPPED, f"the answer is that of {outcome.request_id}"
        if answer is None or answer.agrees(self._answers[attempt.question]):
            return None
        return self._explain(attempt.question, answer)

    def _explain(self, question: Question, answer: Answer) -> tuple[Wrong, str]:
        if other := self._question_of(answer):
            return Wrong.SWAPPED, f"asked {question}, answered {other}"
        return Wrong.CHANGED, f"asked {question}, answered {answer}"

    def _question_of(self, answer: Answer) -> Question | None:
        found = (each for each, whole in self._answers.items() if answer.agrees(whole))
        return next(found, None)


def _whole(outcome: Outcome) -> bool:
    if outcome.answer is None or outcome.request_id is None:
        return False
    return not isinstance(outcome.answer, Written) or outcome.answer.finish_reason is not None
