"""Tiny artefacts for CUDA, by the real build: gated on the CPU, as where there is no GPU."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from export.manifest import Device, Precision
from tests.artefacts import built_once
from tests.checkpoints import (
    write_decoder,
    write_encoder,
    write_encoder_decoder,
    write_learned_decoder,
)

_built = partial(built_once, device=Device.CUDA, precision=Precision.FP16)


def cuda_encoder() -> Path:
    """An encoder like BERT."""
    return _built("tiny-encoder-cuda", write_encoder)


def cuda_decoder() -> Path:
    """A decoder like Llama: rotary positions, grouped heads, a tied output head."""
    return _built("tiny-decoder-cuda", write_decoder)


def cuda_learned_decoder() -> Path:
    """A decoder like GPT-2: learned positions, an output head of its own."""
    return _built("tiny-learned-decoder-cuda", write_learned_decoder)


def cuda_encoder_decoder() -> Path:
    """An encoder-decoder like Marian's: sinusoidal positions, an output head of its own."""
    return _built("tiny-encoder-decoder-cuda", write_encoder_decoder)
