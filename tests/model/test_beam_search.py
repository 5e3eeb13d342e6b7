"""The oracle's beam search: what it finds, and when it ends."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch

from model.beam_search import search_beams
from model.checkpoints import load_checkpoint
from model.decoding_rules import DecodingRules
from model.generate import logits, remember
from tests.checkpoints import (
    ENCODER_DECODER,
    LEARNED_DECODER,
    tiny_checkpoint,
    write_scripted_decoder,
)

PROMPT = [70, 8]


def test_a_width_of_the_vocabulary_finds_the_best_of_all() -> None:
    model = tiny_checkpoint(LEARNED_DECODER).build()
    choices = [5, 17, 90, 200]
    others = tuple(set(range(LEARNED_DECODER.vocab_size)) - set(choices))
    rules = DecodingRules(forbidden_ids=others)
    found = search_beams(model, PROMPT, 3, width=16, rules=rules)

    scores = {}
    for tokens in product(choices, repeat=3):
        following = logits(model, torch.tensor([[*PROMPT, *tokens]]))[0][0].log_softmax(dim=-1)
        total = sum(float(following[1 + at, token]) for at, token in enumerate(tokens))
        scores[tokens] = total / 3
    best = sorted(scores, key=lambda tokens: scores[tokens], reverse=True)[:16]
    assert [beam.tokens for beam in found] == best
    assert [beam.score for beam in found] == pytest.approx([scores[t] for t in best], abs=1e-5)


def test_one_source_serves_every_beam() -> None:
    model = tiny_checkpoint(ENCODER_DECODER).build()
    sources = torch.tensor([[7, 8, 9, 10], [90, 17, 5, 41]])
    first, second = (
        search_beams(model, [0], 8, width=3, source=remember(model, row[None], torch.tensor([4])))
        for row in sources
    )
    assert first != second
    assert len({beam.tokens for beam in first}) == 3


def test_an_end_token_ends_a_beam_and_is_part_of_it(tmp_path: Path) -> None:
    script = [100, 101, 103, 104, 105]
    model = load_checkpoint(write_scripted_decoder(tmp_path, script)).build()
    best = search_beams(model, [9], 50, width=2, eos_ids=[103])[0]
    assert best.tokens == (100, 101, 103)


@pytest.mark.parametrize(("penalty", "shorter"), [(-2.0, True), (4.0, False)])
def test_the_penalty_favours_lengths(penalty: float, shorter: bool) -> None:
    model = tiny_checkpoint(LEARNED_DECODER).build()
    ends = list(range(4, 40))
    lengths = [
        len(search_beams(model, PROMPT, 20, width=4, length_penalty=p, eos_ids=ends)[0].tokens)
        for p in (penalty, 1.0)
    ]
    assert (lengths[0] < lengths[1]) == shorter or lengths[0] == lengths[1] == (
        1 if shorter else 20
    )


def test_no_more_tokens_than_positions(tmp_path: Path) -> None:
    directory = write_scripted_decoder(tmp_path, [100] * 24, max_positions=24)
    model = load_checkpoint(directory).build()
    assert {len(beam.tokens) for beam in search_beams(model, [9] * 20, 50, width=2)} == {4}
