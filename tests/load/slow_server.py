"""`python -m tests.load.slow_server DIR... FLAGS`: a server on a slow device.

Tiny models are faster than a test can call them. This device waits, and leaves the processors to
those who call.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from server import decoder_engine, encoder_engine
from server.command import main
from server.decoder_runner import DecoderRunner
from server.encoder_runner import EncoderRunner
from server.runner import Logits

_STEP_SECONDS = 0.003
_BATCH_SECONDS = 0.03


class SlowDecoderRunner(DecoderRunner):
    """Decodes no faster than a large model would."""

    def decode(self, tokens: Sequence[int], lengths: Sequence[int]) -> Logits:
        time.sleep(_STEP_SECONDS)
        return super().decode(tokens, lengths)


class SlowEncoderRunner(EncoderRunner):
    """Encodes no faster than a large model would."""

    def encode(self, texts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        time.sleep(_BATCH_SECONDS)
        return super().encode(texts)


if __name__ == "__main__":
    with (
        patch.object(decoder_engine, "DecoderRunner", SlowDecoderRunner),
        patch.object(encoder_engine, "EncoderRunner", SlowEncoderRunner),
    ):
        main()
