"""How requests get from the queue to rows that run: what the two ways have in common.

A decoder computes prompts (`PromptPrefill`), an encoder-decoder sources (`SourceEncoding`); what
follows, a token of every running row a step, is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from server.errors import ServerError
from server.generation import Generation
from server.runner import Logits
from server.scheduler import Move, SequenceGroup
from server.scheduler import Sequence as Row

_NO_LOGITS: Logits = np.empty((0, 0), np.float32)
# Lets the request of a group in that has been admitted: it waits no more.
LetIn = Callable[[SequenceGroup], Generation]


@dataclass(frozen=True)
class Begun:
    """What there is to do once a part of beginning has been computed.

    Attributes:
        failed: requests that cannot begin.
        moves: copies between rows, to be made before anything else.
        rows: those whose prompt is complete now, so that a token can be chosen for each.
        logits: `[rows, vocab]` float32, of the last token of their prompts.
    """

    failed: Mapping[Generation, ServerError] = field(default_factory=dict)
    moves: Sequence[Move] = ()
    rows: Sequence[Row] = ()
    logits: Logits = field(default_factory=lambda: _NO_LOGITS)


class Beginning(Protocol):
    """Takes requests from the queue to rows that run."""

    def advance(self) -> Begun:
        """Computes so much of what comes next that running rows do not wait for long.

        Raises:
            EngineDead: the model cannot run at all.
        """
