"""A checkpoint of each family, built and served: targets are those that transformers generates."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from formerd.v1 import generation_pb2 as pb

from tests.artefacts import built_once
from tests.contract.seq2seq import ask, request_for, source
from tests.contract.stubs import Stubs
from tests.e2e.server_process import ServerProcess, running_server
from tests.model.checkpoints import tiny_references
from tests.model.checkpoints.tiny_references import ENCODER_DECODERS, save

SOURCES = [source(length) for length in (40, 1, 17)]
NEW_TOKENS = 12
_SETTINGS = {"num_beams": 4, "length_penalty": 0.5, "bad_words_ids": [[0]], "early_stopping": True}
_HEADS = {"encoder_attention_heads": 3, "decoder_attention_heads": 3}  # 16 wide, to be exported
_CHANGES: dict[str, dict[str, Any]] = {"marian": _HEADS, "bart": _HEADS, "t5": {}}
_FAMILIES = [
    pytest.param(family, marks=[] if family == "marian" else pytest.mark.full)
    for family in _CHANGES
]


@pytest.fixture(scope="module", params=_FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(family: str) -> Iterator[ServerProcess]:
    with running_server([artefact(family)], "--slots", "9", "--threads", "1") as server:
        yield server


@cache
def reference(family: str) -> Any:
    """transformers' model, which says how it wants to be searched."""
    model = ENCODER_DECODERS[family](**_CHANGES[family])
    model.generation_config.update(**_SETTINGS)
    return model


def artefact(family: str) -> Path:
    """The artefact of the reference, built anew where that may have changed."""
    code = hashlib.sha256()
    for path in (__file__, tiny_references.__file__):
        code.update(Path(path).read_bytes())

    def write(directory: Path) -> Path:
        return save(reference(family), directory)

    return built_once(f"{family}-{code.hexdigest()[:8]}", write)


async def test_targets_are_those_of_transformers(
    family: str, server: ServerProcess, stubs: Stubs
) -> None:
    """Greedy and by a search of 4 beams with the checkpoint's length penalty, all at once."""
    fields = {"model": artefact(family).name, "tokens": NEW_TOKENS}
    greedy = [ask(stubs, request_for(ids, **fields)) for ids in SOURCES]
    searched = [ask(stubs, request_for(ids, beam=pb.Beam(width=4), **fields)) for ids in SOURCES]
    answers = [
        list(answer.completions[0].token_ids) for answer in await asyncio.gather(*greedy, *searched)
    ]
    assert answers == [generated(family, ids, beams) for beams in (1, 4) for ids in SOURCES]
    assert len({len(tokens) for tokens in answers}) > 1  # or nothing is known of their ends


def generated(family: str, ids: Sequence[int], beams: int) -> list[int]:
    """The tokens that transformers generates, up to the one that ends them."""
    model = reference(family)
    [tokens] = model.generate(
        torch.tensor([ids]),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        num_beams=beams,
        early_stopping=False,
    )
    ends = set(model.generation_config.eos_token_id)
    target: list[int] = tokens[1:].tolist()
    last = next((index for index, token in enumerate(target) if token in ends), len(target))
    return target[: last + 1]
