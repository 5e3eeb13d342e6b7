"""One call that a load makes, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from client.errors import CallFailed
from client.load.answer import Answer
from client.load.profile import Kind
from client.load.question import Question


@dataclass(frozen=True)
class Attempt:
    """A call that is to be made.

    Attributes:
        id: sent as `request_id`; no two attempts have the same.
        leaves_after: seconds after which the caller goes; None stays.
        deadline: seconds; None is as patient as can be.
    """

    id: str
    kind: Kind
    question: Question
    leaves_after: float | None = None
    deadline: float | None = None


class End(StrEnum):
    """How a call ended for its caller."""

    ANSWERED = "answered"
    REFUSED = "refused"  # the queue was full, and the server said when to come back
    EXPIRED = "expired"  # its deadline passed
    LEFT = "left"  # the caller went
    UNAVAILABLE = "unavailable"  # there is no server, or it is starting or stopping
    FAILED = "failed"  # anything else


@dataclass(frozen=True)
class Outcome:
    """What came of an attempt.

    Attributes:
        seconds: from the moment when the call was due until its end.
        first_token_seconds: until the first token of a stream.
        answer: as far as it came.
        request_id: the one that came back with the answer; None where none did.
        disorder: what was said more than once, or after the end; empty where nothing was.
        failure: why it was refused, unavailable or failed.
    """

    attempt: Attempt
    end: End
    seconds: float
    first_token_seconds: float | None = None
    answer: Answer | None = None
    request_id: str | None = None
    disorder: str = ""
    failure: CallFailed | None = None
