from __future__ import annotations

import random
from itertools import pairwise

import pytest

from client.load.arrivals import arrivals


@pytest.mark.parametrize(("ramp", "share"), [(False, 0.5), (True, 0.25)])
def test_arrivals_come_at_the_rate_that_is_asked_for(ramp: bool, share: float) -> None:
    offsets = list(arrivals(100.0, 200.0, ramp=ramp, draw=random.Random(0)))
    assert offsets == sorted(offsets)
    assert 0 < offsets[0] < offsets[-1] < 200
    assert len(offsets) == pytest.approx(100 * 200 * (0.5 if ramp else 1), rel=0.05)
    early = sum(offset < 100 for offset in offsets) / len(offsets)
    assert early == pytest.approx(share, abs=0.02)


def test_arrivals_are_as_irregular_as_those_of_strangers() -> None:
    """The deviation of the gaps of a Poisson process is their mean."""
    offsets = list(arrivals(100.0, 200.0, ramp=False, draw=random.Random(1)))
    gaps = [after - before for before, after in pairwise(offsets)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance**0.5 == pytest.approx(mean, rel=0.05)
