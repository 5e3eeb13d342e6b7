"""From the protocol's beam to the domain's."""

from __future__ import annotations

from formerd.v1 import generation_pb2 as pb

from export.manifest import GenerationDefaults
from server.conversion.ranges import Range
from server.errors import InvalidInput
from server.request import Beam, Sampling

_LENGTH_PENALTY = Range(-10, 10)


def read_beam(
    message: pb.Beam, defaults: GenerationDefaults, sampling: Sampling, n: int, slots: int
) -> Beam | None:
    """Checks and fills in; None where there is one beam only, which is no search.

    Raises:
        InvalidInput: a value is out of its range, or contradicts the sampling or `n`.
    """
    width = message.width if message.HasField("width") else 1
    Range(1, slots).check("beam.width", width)
    if width == 1:
        if message.HasField("length_penalty"):
            raise InvalidInput(
                "beam.length_penalty is set, but beam.width is 1: set a width, or leave it unset"
            )
        return None
    if not sampling.greedy:
        raise InvalidInput(
            f"beam.width is {width}, but the request samples: set sampling.temperature to 0"
        )
    if n > width:
        raise InvalidInput(f"n is {n}; it must be at most beam.width, which is {width}")
    if message.HasField("length_penalty"):
        _LENGTH_PENALTY.check("beam.length_penalty", message.length_penalty)
        return Beam(width, message.length_penalty)
    penalty = defaults.length_penalty
    return Beam(width) if penalty is None else Beam(width, penalty)
