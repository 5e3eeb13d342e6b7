"""The decoder graph: eager PyTorch's logits, its cache in place, rows independent bit by bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from export.decoder_graph import decoder_graph
from export.decoder_run import DecoderRun
from export.graph import ExportError
from model.config import Activation, NormPlacement, Positions, TransformerConfig
from model.generate import logits
from model.transformer import Transformer
from tests.checkpoints import DECODER, LEARNED_DECODER
from tests.export.graphs import SHAPES, DecoderPair, decoder_pair, tiny_decoder_pair

_CAPACITY = 64
_CANARY = 7.0
_VARIANTS = {
    "learned, with every bias": replace(LEARNED_DECODER, head_bias=True, position_offset=2),
    "sinusoidal, post-norm, tied": replace(
        LEARNED_DECODER,
        positions=Positions.SINUSOIDAL,
        norm_placement=NormPlacement.POST,
        final_norm=False,
        tied_head=True,
        activation=Activation.GELU_TANH,
        embedding_norm=True,
    ),
    "no positions, narrow heads": replace(
        LEARNED_DECODER, positions=Positions.NONE, head_dim=8, kv_heads=1
    ),
}


@pytest.fixture(scope="module", params=[False, True], ids=["grouped query", "standard"])
def llama(request: pytest.FixtureRequest) -> DecoderPair:
    """With the operator that formerd usually takes, and in standard operators alone."""
    return tiny_decoder_pair(standard_ops=request.param)


def test_a_ragged_prompt_batch_agrees(llama: DecoderPair) -> None:
    lengths = (23, 1, 9)
    prompts = np.zeros((3, 23), dtype=np.int64)
    for row, length in enumerate(lengths):
        prompts[row, :length] = _ids(length, row)
    found = llama.run(3, _CAPACITY).step(prompts, [0, 0, 0]).reshape(3, 23, -1)
    for row, length in enumerate(lengths):
        wanted = _wanted(llama.model, prompts[row, :length])
        np.testing.assert_allclose(found[row, :length], wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("batch", "length"), SHAPES)
def test_every_prompt_shape_agrees(llama: DecoderPair, batch: int, length: int) -> None:
    prompt = _ids(length)
    prompts = np.broadcast_to(prompt, (batch, length))
    last = [length * (row + 1) - 1 for row in range(batch)]
    found = llama.run(batch, 512).step(prompts, [0] * batch, logit_positions=last)
    wanted = np.broadcast_to(_wanted(llama.model, prompt)[-1], found.shape)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


# GPT-2's build has learned positions and every bias too.
_PARAMETERS = [
    pytest.param(name, marks=[pytest.mark.full] if name == "learned, with every bias" else [])
    for name in _VARIANTS
]


@pytest.mark.parametrize("variant", _PARAMETERS)
def test_every_variant_agrees_in_chunks_and_decoding(variant: str, tmp_path: Path) -> None:
    pair = decoder_pair(_VARIANTS[variant], tmp_path)
    _check_generation(pair)


def test_llama_agrees_in_chunks_and_decoding(llama: DecoderPair) -> None:
    _check_generation(llama)


def test_standard_operators_take_heads_of_any_width(tmp_path: Path) -> None:
    config = replace(LEARNED_DECODER, heads=2, kv_heads=1, head_dim=6)
    _check_generation(decoder_pair(config, tmp_path, standard_ops=True))


def test_no_logits_where_none_are_asked_for(llama: DecoderPair) -> None:
    prompt = _ids(12)
    run = llama.run(1, _CAPACITY)
    assert run.step(prompt[None, :11], [0], logit_positions=()).shape == (0, DECODER.vocab_size)
    found = run.step(prompt[None, 11:], [11])
    np.testing.assert_allclose(found, _wanted(llama.model, prompt)[11:], rtol=0, atol=2e-5)


def test_only_the_positions_that_are_asked_for(llama: DecoderPair) -> None:
    prompts = np.stack([_ids(5, 0), _ids(5, 1)])
    run = llama.run(2, _CAPACITY)
    everything = run.step(prompts, [0, 0])
    some = run.step(prompts, [0, 0], logit_positions=[9, 0, 4])
    np.testing.assert_allclose(some, everything[[9, 0, 4]], rtol=0, atol=1e-6)


def test_the_cache_is_written_in_place_and_nowhere_else(llama: DecoderPair) -> None:
    run = _canaried(llama, slots=4)
    run.step(_ids(9)[None], [0], first_slot=2)
    run.step(_ids(2)[:, None], [9, 3], first_slot=2)
    for cache in run.caches.values():
        assert (cache[:2] == _CANARY).all()
        assert (cache[2, :, 10:] == _CANARY).all()
        assert (cache[2, :, :10] != _CANARY).all()
        assert (cache[3, :, 4:] == _CANARY).all()
        assert (cache[3, :, :3] == _CANARY).all()
        assert (cache[3, :, 3] != _CANARY).all()


def test_what_another_text_left_in_the_cache_does_not_matter(llama: DecoderPair) -> None:
    """Not even a NaN."""
    prompt = _ids(20)
    found = []
    for left in (0.0, np.nan):
        run = llama.run(2, _CAPACITY)
        for cache in run.caches.values():
            cache.fill(left)
        chunks = [run.step(prompt[None, start:][:, :8], [start], 1) for start in (0, 8)]
        found.append([*chunks, *(run.step(prompt[None, i : i + 1], [i], 1) for i in range(16, 20))])
    for clean, littered in zip(*found, strict=True):
        np.testing.assert_array_equal(littered, clean)


def test_the_last_position_of_the_capacity_can_be_used(llama: DecoderPair) -> None:
    prompt = _ids(_CAPACITY)
    run = llama.run(2, _CAPACITY)
    run.caches["1.value"][1] = _CANARY
    run.step(prompt[None, :-1], [0], logit_positions=())
    found = run.step(prompt[None, -1:], [_CAPACITY - 1])[0]
    np.testing.assert_allclose(found, _wanted(llama.model, prompt)[-1], rtol=0, atol=2e-5)
    assert (run.caches["1.value"][1] == _CANARY).all()


@pytest.mark.parametrize("batch", range(2, 9))
def test_a_row_decodes_to_the_same_bits_alone_and_batched(llama: DecoderPair, batch: int) -> None:
    pasts = [3, 16, 0, 9, 40, 1, 16, 63][:batch]
    run = _random_run(llama, slots=8)
    tokens = _ids(batch)[:, None]
    together = run.step(tokens, pasts)
    for row, past in enumerate(pasts):
        alone = run.step(tokens[row : row + 1], [past], first_slot=row)
        np.testing.assert_array_equal(alone[0], together[row])


def test_rows_of_any_lengths_decode_to_the_same_bits_alone_and_batched(llama: DecoderPair) -> None:
    """A row alone may read less of the cache than in company; its sums must not notice."""
    generator = np.random.default_rng(1)
    run = llama.run(slots=8, capacity=600)
    for cache in run.caches.values():
        cache[:] = generator.standard_normal(cache.shape)
    for _ in range(10):
        pasts = generator.integers(0, DECODER.max_positions, 8).tolist()
        tokens = generator.integers(0, DECODER.vocab_size, (8, 1))
        together = run.step(tokens, pasts)
        for row, past in enumerate(pasts):
            alone = run.step(tokens[row : row + 1], [past], first_slot=row)
            np.testing.assert_array_equal(alone[0], together[row])


def test_a_move_is_exact_and_leaves_the_rest_alone(llama: DecoderPair) -> None:
    run = _random_run(llama, slots=3)
    before = {name: cache.copy() for name, cache in run.caches.items()}
    for length in (1, 17, _CAPACITY):
        llama.mover.move(run.caches, 2, run.caches, 0, length)
        for name, cache in run.caches.items():
            np.testing.assert_array_equal(cache[0, :, :length], before[name][2, :, :length])
            np.testing.assert_array_equal(cache[0, :, length:], before[name][0, :, length:])
            np.testing.assert_array_equal(cache[1:], before[name][1:])


def test_a_moved_row_decodes_to_the_same_bits(llama: DecoderPair) -> None:
    prompt = _ids(20)
    run = _canaried(llama, slots=4)
    run.step(prompt[None, :19], [0], first_slot=3, logit_positions=())
    stayed = run.step(prompt[None, 19:], [19], first_slot=3)
    llama.mover.move(run.caches, 3, run.caches, 1, length=19)
    moved = run.step(prompt[None, 19:], [19], first_slot=1)
    np.testing.assert_array_equal(moved, stayed)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (replace(DECODER, head_dim=8), "head_dim 8 with positions rotary.* multiple of 16"),
        (replace(LEARNED_DECODER, head_dim=12), "head_dim 12 with positions learned.* of 8"),
    ],
)
def test_refuses_heads_that_the_operator_cannot_do(config: TransformerConfig, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        decoder_graph(Transformer(config))


def _check_generation(pair: DecoderPair) -> None:
    """Chunks of 8 to position 24, then one token at a time."""
    tokens = _ids(30)
    wanted = _wanted(pair.model, tokens)
    run = pair.run(2, _CAPACITY)
    for start in range(0, 24, 8):
        found = run.step(tokens[None, start : start + 8], [start], first_slot=1)
        np.testing.assert_allclose(found, wanted[start : start + 8], rtol=0, atol=2e-5)
    for past in range(24, 30):
        found = run.step(tokens[None, past : past + 1], [past], first_slot=1)
        np.testing.assert_allclose(found[0], wanted[past], rtol=0, atol=2e-5)


def _wanted(model: Transformer, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    wanted: NDArray[np.float32] = logits(model, torch.from_numpy(tokens.copy())[None])[0][0].numpy()
    return wanted


def _ids(length: int, seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, DECODER.vocab_size, length)


def _canaried(pair: DecoderPair, slots: int) -> DecoderRun:
    run = pair.run(slots, _CAPACITY)
    for cache in run.caches.values():
        cache.fill(_CANARY)
    return run


def _random_run(pair: DecoderPair, slots: int) -> DecoderRun:
    run = pair.run(slots, _CAPACITY)
    generator = np.random.default_rng(0)
    for cache in run.caches.values():
        cache[:] = generator.standard_normal(cache.shape)
    return run
