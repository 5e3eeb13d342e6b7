"""When calls arrive that wait for nobody."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator


def arrivals(rate: float, seconds: float, *, ramp: bool, draw: random.Random) -> Iterator[float]:
    """Offsets in seconds of a Poisson process, in order, up to `seconds`.

    `rate` is the number a second: all the time, or at the end of a ramp that begins at nothing.
    """
    expected = 0.0  # how many there are until the next one, on average
    while True:
        expected += draw.expovariate(1.0)
        # The average up to a moment t is rate * t, or rate * t^2 / (2 * seconds) on a ramp.
        offset = math.sqrt(2 * seconds * expected / rate) if ramp else expected / rate
        if offset >= seconds:
            return
        yield offset
