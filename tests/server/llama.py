"""A tiny Llama of transformers and the artefact that is made of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.artefacts import built_once
from tests.model.checkpoints.tiny_references import save, tiny_llama

CAPACITY = 128


def llama_artefact() -> Path:
    """`tiny-llama`: what `llama_model` says."""
    return built_once("tiny-llama", _write)


@cache
def llama_model() -> Any:
    """The model itself, run by transformers. Its tokens are surer than those of random weights."""
    model = tiny_llama(hidden_size=64, num_attention_heads=4, max_position_embeddings=CAPACITY)
    model.model.norm.weight.data *= 6
    return model


def beams_of_transformers(
    prompt: list[int], width: int, *, eos_ids: tuple[int, ...], **options: Any
) -> list[tuple[int, ...]]:
    """The beams that transformers finds, best first, without their padding."""
    ids = torch.tensor([prompt])
    found = llama_model().generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=width,
        num_return_sequences=width,
        eos_token_id=list(eos_ids) or None,
        pad_token_id=0,
        do_sample=False,
        **options,
    )
    return [_without_padding(row[len(prompt) :].tolist(), eos_ids) for row in found]


def _without_padding(ids: list[int], eos_ids: tuple[int, ...]) -> tuple[int, ...]:
    ends = [index for index, token in enumerate(ids) if token in eos_ids]
    return tuple(ids[: ends[0] + 1] if ends else ids)


def _write(directory: Path) -> Path:
    return save(llama_model(), directory)
