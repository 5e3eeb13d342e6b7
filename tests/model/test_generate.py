"""The oracle: with and without cache, greedy and sampled, and where it ends."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from model.checkpoints import load_checkpoint
from model.config import Pooling, PoolingMode
from model.generate import (
    Source,
    embed,
    encode,
    generate_greedy,
    generate_sampled,
    logits,
    remember,
    warp,
)
from model.pooling import pool
from model.transformer import Transformer
from tests.checkpoints import (
    DECODER,
    ENCODER,
    ENCODER_DECODER,
    END_ID,
    LEARNED_DECODER,
    RELATIVE_ENCODER_DECODER,
    tiny_checkpoint,
    write_scripted_decoder,
)

PROMPT = [70, 8, 9]


class Given(NamedTuple):
    """A tiny model, how its text begins, and a source where it reads one."""

    model: Transformer
    prompt: list[int]
    source: Source | None


@pytest.fixture(
    params=[DECODER, LEARNED_DECODER, ENCODER_DECODER, RELATIVE_ENCODER_DECODER],
    ids=["rotary", "learned", "seq2seq", "relative"],
)
def given(request: pytest.FixtureRequest) -> Given:
    checkpoint = tiny_checkpoint(request.param)
    model = checkpoint.build()
    if checkpoint.decoder_start_id is None:
        return Given(model, PROMPT, None)
    source = remember(model, torch.tensor([[7, 8, 9, 10]]), torch.tensor([4]))
    return Given(model, [checkpoint.decoder_start_id], source)


def test_greedy_is_the_same_without_a_cache(given: Given) -> None:
    model, prompt, source = given
    tokens = generate_greedy(model, prompt, 64, source=source)
    assert len(tokens) == 64
    assert len(set(tokens)) > 4  # a text that never changes would hide mistakes
    assert tokens == generate_greedy(model, prompt, 64, source=source, cached=False)


@pytest.mark.parametrize(("cached", "computed"), [(True, [3, 1, 1, 1]), (False, [3, 4, 5, 6])])
def test_a_cache_saves_what_came_before(cached: bool, computed: list[int]) -> None:
    model = tiny_checkpoint(DECODER).build()
    lengths: list[int] = []
    model.decoder.embedding.register_forward_pre_hook(
        lambda _, inputs: lengths.append(inputs[0].shape[1])
    )
    generate_greedy(model, PROMPT, 4, cached=cached)
    assert lengths == computed


def test_sampled_is_the_same_without_a_cache_and_again(given: Given) -> None:
    model, prompt, source = given

    def sample(seed: int, cached: bool = True) -> list[int]:
        return generate_sampled(
            model,
            prompt,
            32,
            seed=seed,
            temperature=0.9,
            top_k=50,
            top_p=0.95,
            source=source,
            cached=cached,
        )

    assert sample(7) == sample(7) == sample(7, cached=False)
    assert sample(7) != sample(8)


def test_chunks_and_the_cache_give_the_same_logits(given: Given) -> None:
    model, _, source = given
    ids = torch.randint(4, 200, (1, 20), generator=torch.Generator().manual_seed(0))
    whole, _ = logits(model, ids, source=source)
    past = None
    for chunk in (ids[:, :7], ids[:, 7:8], ids[:, 8:]):
        scores, past = logits(model, chunk, past, source)
    torch.testing.assert_close(scores, whole[:, 8:], atol=1e-4, rtol=1e-4)


def test_a_padded_row_has_the_logits_that_it_has_alone() -> None:
    model = tiny_checkpoint(DECODER).build()
    ids = torch.randint(4, 200, (2, 9), generator=torch.Generator().manual_seed(0))
    together, _ = logits(model, ids)
    alone, _ = logits(model, ids[1:, :5])
    torch.testing.assert_close(together[1:, :5], alone, atol=1e-5, rtol=1e-5)


def test_greedy_says_the_script_by_position(tmp_path: Path) -> None:
    script = [100, 101, 102, 103, 100, 104]
    checkpoint = load_checkpoint(write_scripted_decoder(tmp_path, script))
    model = checkpoint.build()
    assert generate_greedy(model, [9], 5) == script[:5]
    assert generate_greedy(model, [30, 9, 8], 50, eos_ids=[END_ID]) == [*script[2:], END_ID]
    assert generate_sampled(model, [30, 9], 5, seed=3) == script[1:]


@pytest.mark.parametrize("stop", [104, 103])
def test_an_end_token_ends_the_text_and_is_part_of_it(tmp_path: Path, stop: int) -> None:
    script = [100, 101, 103, 104, 105]
    model = load_checkpoint(write_scripted_decoder(tmp_path, script)).build()
    tokens = generate_greedy(model, [9], 50, eos_ids=[7, stop])
    assert tokens == script[: script.index(stop) + 1]


def test_no_more_tokens_than_positions(tmp_path: Path) -> None:
    directory = write_scripted_decoder(tmp_path, [100] * 24, max_positions=24)
    model = load_checkpoint(directory).build()
    assert len(generate_greedy(model, [9] * 20, 50)) == 4


def test_warp_agrees_with_transformers() -> None:
    generator = torch.Generator().manual_seed(0)
    for top_k, top_p in [(5, 1.0), (0, 0.7), (50, 0.3), (500, 0.95), (1, 0.01)]:
        scores = torch.randn(200, generator=generator) * 3
        expected = scores[None]
        if top_k:
            expected = TopKLogitsWarper(top_k)(None, expected)
        if top_p < 1:
            expected = TopPLogitsWarper(top_p)(None, expected)
        assert torch.equal(warp(scores, top_k, top_p), expected[0])


def test_samples_follow_the_distribution() -> None:
    checkpoint = tiny_checkpoint(LEARNED_DECODER)
    model = checkpoint.build()
    scores, _ = logits(model, torch.tensor([PROMPT]))
    probabilities = warp(scores[0, -1] / 0.4, 4, 1.0).softmax(dim=-1)
    draws = 400
    counts = torch.zeros(checkpoint.config.vocab_size)
    for seed in range(draws):
        (token,) = generate_sampled(model, PROMPT, 1, seed=seed, temperature=0.4, top_k=4)
        counts[token] += 1
    likely = probabilities > 0
    assert int(counts[~likely].sum()) == 0
    expected = probabilities[likely] * draws
    chi_square = float(((counts[likely] - expected).square() / expected).sum())
    assert chi_square < 16.3  # one in a thousand, at 3 degrees of freedom


def test_embed_pools_the_states() -> None:
    model = tiny_checkpoint(ENCODER).build()
    ids, lengths = torch.tensor([[5, 6, 7], [8, 9, 0]]), torch.tensor([3, 2])
    pooling = Pooling(PoolingMode.MAX, normalize=True)
    expected = pool(encode(model, ids, lengths), lengths, pooling)
    assert torch.equal(embed(model, pooling, ids, lengths), expected)
