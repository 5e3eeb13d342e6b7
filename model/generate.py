"""The oracle: running the model and generating text, slowly and obviously right, in eager PyTorch.

Export and server are judged against it, and it is judged against Hugging Face transformers.
Shapes: `B` batch, `S` sequence, `K` source length, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from model.cache import Cache
from model.config import Pooling
from model.decoding_rules import NO_RULES, DecodingRules
from model.eager_attention import (
    EagerCrossAttention,
    EagerSelfAttention,
    causal_mask,
    padding_mask,
)
from model.pooling import pool
from model.transformer import Transformer


@dataclass(frozen=True)
class Source:
    """An encoded source: what a decoder's cross-attention reads.

    Attributes:
        memory: keys and values of each decoder layer, `[B, G, K, D]` each.
        lengths: int64 `[B]`, real tokens of each source.
    """

    memory: Cache
    lengths: Tensor


@torch.inference_mode()
def encode(model: Transformer, input_ids: Tensor, lengths: Tensor) -> Tensor:
    """Token states of the encoder.

    Args:
        input_ids: int64 `[B, S]`, padded on the right with any valid id.
        lengths: int64 `[B]`, real tokens of each row.

    Returns:
        `[B, S, d_model]`; rows beyond a text's length mean nothing.
    """
    positions = torch.arange(input_ids.shape[1]).expand_as(input_ids)
    mask = padding_mask(lengths, input_ids.shape[1])
    if model.config.causal_encoder:
        mask = causal_mask(positions, input_ids.shape[1])  # padding comes after what is real
    attend = EagerSelfAttention.of_stack(model.encoder, positions, mask)
    states: Tensor = model.encoder(input_ids, positions, attend)
    return states


def embed(model: Transformer, pooling: Pooling, input_ids: Tensor, lengths: Tensor) -> Tensor:
    """One vector a text: `input_ids [B, S]`, `lengths [B]` as for `encode` -> `[B, d_model]`."""
    return pool(encode(model, input_ids, lengths), lengths, pooling)


@torch.inference_mode()
def remember(model: Transformer, input_ids: Tensor, lengths: Tensor) -> Source:
    """Encodes sources (as `encode`) for the decoder of an encoder-decoder model."""
    return Source(model.decoder.remember(encode(model, input_ids, lengths)), lengths)


@torch.inference_mode()
def logits(
    model: Transformer, input_ids: Tensor, past: Cache | None = None, source: Source | None = None
) -> tuple[Tensor, Cache]:
    """The decoder on the next tokens of each row.

    Rows of different lengths need no mask when padded on the right: causality hides what comes
    later, so row b is right up to its own length.

    Args:
        input_ids: int64 `[B, S]`, standing right after the tokens in `past`.
        past: the cache of the tokens before, None for none.
        source: for encoder-decoder models.

    Returns:
        Logits `[B, S, V]` of the token after each, and the cache with the new tokens in it.
    """
    before = 0 if past is None else past[0].key.shape[2]
    batch, new = input_ids.shape
    positions = torch.arange(before, before + new).expand(batch, new)
    mask = causal_mask(positions, before + new)
    attend = EagerSelfAttention.of_stack(model.decoder, positions, mask, keys=before + new)
    memory, attend_memory = None, None
    if source is not None:
        memory = source.memory
        attend_memory = EagerCrossAttention(
            padding_mask(source.lengths, memory[0].key.shape[2]),
            scaled=model.config.scaled_attention,
        )
    states, present = model.decoder(input_ids, positions, attend, past, memory, attend_memory)
    return model.decoder.head(states), cast("Cache", present)


Choose = Callable[[Tensor, int], int]  # logits [V] and how many tokens came before -> a token


def generate_greedy(
    model: Transformer,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    eos_ids: Sequence[int] = (),
    source: Source | None = None,
    cached: bool = True,
    rules: DecodingRules = NO_RULES,
) -> list[int]:
    """Continues one prompt with the likeliest token each time; of equals, the lowest id.

    Args:
        prompt: at least one id; for encoder-decoder models the start of the target.
        eos_ids: ids that end the text; the one that did is part of the answer.
        source: for encoder-decoder models, of one row.
        cached: whether to keep a cache, or to compute everything anew for each token.
        rules: what the checkpoint demands of every text.

    Returns:
        The new ids, at most `max_new_tokens`, and no more than the model has positions for.
    """

    def choose(scores: Tensor, _: int) -> int:
        return int(scores.argmax())

    return _generate(model, prompt, max_new_tokens, choose, eos_ids, source, cached, rules)


def generate_sampled(
    model: Transformer,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    seed: int,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    eos_ids: Sequence[int] = (),
    source: Source | None = None,
    cached: bool = True,
    rules: DecodingRules = NO_RULES,
) -> list[int]:
    """Continues one prompt with random tokens; one seed gives one text.

    Args:
        temperature: above 0; divides the logits.
        top_k: how many of the likeliest tokens may be chosen, 0 for all.
        top_p: the smallest set of the likeliest tokens that is at least this probable may be
            chosen (Holtzman et al. 2020).

    The rest is as for `generate_greedy`.
    """

    def choose(scores: Tensor, position: int) -> int:
        # A generator of its own for each position: a token depends on nothing drawn before.
        generator = torch.Generator().manual_seed(seed * 1_000_003 + position)
        probabilities = warp(scores / temperature, top_k, top_p).softmax(dim=-1)
        return int(torch.multinomial(probabilities, 1, generator=generator))

    return _generate(model, prompt, max_new_tokens, choose, eos_ids, source, cached, rules)


def warp(scores: Tensor, top_k: int, top_p: float) -> Tensor:
    """Logits `[V]` with those of the tokens that may not be chosen at minus infinity."""
    if top_k:
        least = scores.topk(min(top_k, scores.numel())).values[-1]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if top_p < 1.0:
        probabilities, order = scores.softmax(dim=-1).sort(descending=True, stable=True)
        likelier = probabilities.cumsum(dim=-1) - probabilities  # of all tokens before each
        scores = scores.index_fill(0, order[likelier >= top_p], -torch.inf)
    return scores


def _generate(
    model: Transformer,
    prompt: Sequence[int],
    max_new_tokens: int,
    choose: Choose,
    eos_ids: Sequence[int],
    source: Source | None,
    cached: bool,
    rules: DecodingRules,
) -> list[int]:
    tokens = list(prompt)
    past: Cache | None = None
    most = min(max_new_tokens, model.config.max_positions - len(prompt))
    for new in range(most):
        unseen = tokens[-1:] if past is not None else tokens
        following, present = logits(model, torch.tensor([unseen]), past, source)
        past = present if cached else None
        scores = rules.apply(following[0, -1], tokens, new, room=most - new, ends=eos_ids)
        tokens.append(choose(scores, len(tokens)))
        if tokens[-1] in eos_ids:
            break
    return tokens[len(prompt) :]
