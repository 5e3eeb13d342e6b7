"""What the scenarios are briefly run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.artefacts import encoder_artefact, learned_decoder_artefact


@pytest.fixture
def tiny_models() -> list[Path]:
    """One that embeds, and one that generates up to 1 024 tokens."""
    return [encoder_artefact(), learned_decoder_artefact()]
