"""A model that has learned the syllables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from examples.g2p.training import Training
from tests.examples.g2p.words import TINY, split_syllables


@pytest.fixture(scope="session")
def trained() -> Training:
    """Not to be trained any further."""
    training = Training(replace(TINY, epochs=40, peak_rate=1e-2), split_syllables())
    while not training.finished:
        training.run_epoch()
    return training
