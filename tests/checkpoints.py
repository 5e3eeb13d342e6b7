"""Tiny native checkpoints, every parameter random, for tests of every package.

Each function writes one directory and returns it: `load_checkpoint` reads it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor

from model.checkpoint import Checkpoint
from model.checkpoints.native import save_native
from model.config import (
    Activation,
    Kind,
    Norm,
    NormPlacement,
    Pooling,
    PoolingMode,
    Positions,
    TransformerConfig,
)
from model.transformer import Transformer

PAD, END, TURN_START, TURN_END = "<pad>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"
PAD_ID, END_ID, TURN_START_ID, TURN_END_ID = range(4)
_SPECIALS = (PAD, END, TURN_START, TURN_END)
_MERGES = ("t h", "th e", "Ġ the", "Ġ a", "i n", "e r", "o n", "a n", "an d", "Ġ and", "l l", "a t")
_TARGET_TOKENS = tuple(f"<new{number}>" for number in range(9))
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(*, bracketed: bool = False) -> Tokenizer:
    """A byte-level BPE tokenizer with a few merges: any text round trips, an emoji is 4 tokens.

    Bracketed puts `<|im_start|>` before and `<|im_end|>` after each text, as BERT does [CLS] and
    [SEP].
    """
    merges = [(first, second) for first, second in (merge.split() for merge in _MERGES)]
    tokens = [
        *_SPECIALS,
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        *(first + second for first, second in merges),
    ]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in _SPECIALS]
    )
    if bracketed:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{TURN_START} $A {TURN_END}",
            special_tokens=[(TURN_START, TURN_START_ID), (TURN_END, TURN_END_ID)],
        )
    return tokenizer


def target_tokenizer() -> Tokenizer:
    """The byte tokenizer with nine tokens more, which no source has."""
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(list(_TARGET_TOKENS))
    return tokenizer


VOCABULARY = byte_tokenizer().get_vocab_size()

ENCODER = TransformerConfig(
    kind=Kind.ENCODER,
    vocab_size=VOCABULARY,
    d_model=64,
    heads=4,
    d_ff=96,
    max_positions=512,
    encoder_layers=2,
    positions=Positions.LEARNED,
    norm_eps=1e-12,
    norm_placement=NormPlacement.POST,
    final_norm=False,
    embedding_norm=True,
    token_types=2,
)
DECODER = TransformerConfig(
    kind=Kind.DECODER,
    vocab_size=VOCABULARY,
    d_model=64,
    heads=4,
    kv_heads=2,
    d_ff=96,
    max_positions=512,
    decoder_layers=2,
    positions=Positions.ROTARY,
    norm=Norm.RMS,
    activation=Activation.SILU,
    gated=True,
    attention_bias=False,
    output_bias=False,
    ff_bias=False,
)
LEARNED_DECODER = TransformerConfig(
    kind=Kind.DECODER,
    vocab_size=VOCABULARY,
    d_model=64,
    heads=4,
    d_ff=128,
    max_positions=1024,
    decoder_layers=2,
    positions=Positions.LEARNED,
    tied_head=False,
)
ENCODER_DECODER = replace(
    ENCODER,
    kind=Kind.ENCODER_DECODER,
    decoder_layers=2,
    positions=Positions.SINUSOIDAL,
    norm_eps=1e-5,
    embedding_norm=False,
    token_types=0,
    activation=Activation.RELU,
    embedding_scale=8.0,
    tied_head=False,
    head_bias=True,
)
TWO_VOCABULARIES = replace(
    ENCODER_DECODER,
    target_vocab_size=VOCABULARY + len(_TARGET_TOKENS),
    positions=Positions.SINUSOIDAL_HALVES,
    activation=Activation.SILU,
    tied_head=True,
)
RELATIVE_ENCODER_DECODER = replace(
    DECODER,
    kind=Kind.ENCODER_DECODER,
    kv_heads=4,
    encoder_layers=2,
    positions=Positions.RELATIVE,
    relative_buckets=8,
    relative_max_distance=20,
    activation=Activation.GELU_TANH,
    scaled_attention=False,
    head_scale=0.125,
)
MARIAN_SETTINGS = {
    "bad_words_ids": [[PAD_ID]],
    "forced_eos_token_id": END_ID,
    "max_new_tokens": 99,
    "no_repeat_ngram_size": 3,
}


def random_tensors(config: TransformerConfig, seed: int = 0) -> dict[str, Tensor]:
    """Every parameter of the model, random: biases and norm gains too."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: _random(name, parameter.shape, generator)
        for name, parameter in Transformer(config).named_parameters()
    }
    if not config.scaled_attention:  # the queries are made smaller instead, as T5 does
        for name, tensor in tensors.items():
            if name.endswith("query.weight"):
                tensor *= config.head_dim**-0.5
    return tensors


def tiny_checkpoint(config: TransformerConfig, seed: int = 0) -> Checkpoint:
    """A random checkpoint of a configuration, with the byte tokenizer and what its kind needs."""
    tensors = random_tensors(config, seed)
    encoder_only, own_target = config.kind is Kind.ENCODER, config.target_vocab_size > 0
    checkpoint = Checkpoint(
        family="native",
        config=config,
        tensors=tensors,
        sources={name: (name,) for name in tensors},
        tokenizer_json=byte_tokenizer(bracketed=encoder_only or own_target).to_str().encode(),
        target_tokenizer_json=target_tokenizer().to_str().encode() if own_target else None,
        max_input=config.max_positions,
        pad_id=PAD_ID,
    )
    if encoder_only:
        return replace(checkpoint, pooling=Pooling(PoolingMode.MEAN, normalize=True))
    if config.kind is Kind.ENCODER_DECODER:
        return replace(checkpoint, eos_ids=(END_ID,), decoder_start_id=PAD_ID)
    return replace(
        checkpoint,
        eos_ids=(END_ID, TURN_END_ID),
        chat_template=CHAT_TEMPLATE,
        chat_tokens={"bos_token": TURN_START, "eos_token": TURN_END, "pad_token": PAD},
    )


def write_encoder(directory: Path, seed: int = 0, dtype: torch.dtype = torch.float32) -> Path:
    """An encoder like BERT: post-norm, learned positions, mean pooling, unit length."""
    return _write(directory, tiny_checkpoint(ENCODER, seed), dtype)


def write_decoder(directory: Path, seed: int = 0, dtype: torch.dtype = torch.float32) -> Path:
    """A decoder like Llama: rotary, RMSNorm, gated SiLU, 4 heads over 2 key/value heads."""
    return _write(directory, tiny_checkpoint(DECODER, seed), dtype)


def write_learned_decoder(
    directory: Path, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Path:
    """A decoder like GPT-2 with 1 024 learned positions: the G of the case list."""
    return _write(directory, tiny_checkpoint(LEARNED_DECODER, seed), dtype)


def write_encoder_decoder(
    directory: Path, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Path:
    """An encoder-decoder like Marian's: post-norm, sinusoidal positions, one vocabulary."""
    return _write(directory, tiny_checkpoint(ENCODER_DECODER, seed), dtype)


def write_relative_encoder_decoder(
    directory: Path, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Path:
    """An encoder-decoder like T5: relative positions, RMSNorm, unscaled attention, tied head."""
    return _write(directory, tiny_checkpoint(RELATIVE_ENCODER_DECODER, seed), dtype)


def write_two_vocabularies(
    directory: Path, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Path:
    """An encoder-decoder like Marian's with a vocabulary of its own for targets, and rules."""
    checkpoint = replace(tiny_checkpoint(TWO_VOCABULARIES, seed), generation=MARIAN_SETTINGS)
    return _write(directory, checkpoint, dtype)


def write_scripted_decoder(
    directory: Path, script: Sequence[int], max_positions: int = 256
) -> Path:
    """A decoder that says `script` by absolute position, whatever it reads: the X of the cases.

    The token at position p (from 0) is followed by `script[p]`; a prompt of n tokens is therefore
    continued with `script[n - 1:]`. Positions beyond the script say `END`.

    Every weight is zero but the position table (the identity), the gains (1) and the output head,
    where the row of a token points at the positions that say it.
    """
    config = replace(
        LEARNED_DECODER,
        d_model=max_positions,
        max_positions=max_positions,
        heads=1,
        kv_heads=1,
        head_dim=8,
        d_ff=8,
        decoder_layers=1,
    )
    if len(script) > max_positions:
        raise ValueError(f"a script of {len(script)} tokens for {max_positions} positions")
    tensors = {name: torch.zeros_like(t) for name, t in random_tensors(config).items()}
    for name, tensor in tensors.items():
        if name.endswith("norm.weight"):
            tensor.fill_(1.0)
    tensors["decoder.embedding.positions.table"] = torch.eye(max_positions)
    said = [*script, *[END_ID] * (max_positions - len(script))]
    tensors["decoder.head.weight"][said, range(max_positions)] = 1.0
    return _write(directory, replace(tiny_checkpoint(config), tensors=tensors), torch.float32)


def _write(directory: Path, checkpoint: Checkpoint, dtype: torch.dtype) -> Path:
    save_native(directory, checkpoint, dtype)
    return directory


def _random(name: str, shape: torch.Size, generator: torch.Generator) -> Tensor:
    noise = torch.randn(shape, generator=generator)
    if name.endswith("norm.weight"):
        return noise.mul(0.2).add(1.0)
    if name.endswith("bias"):
        return noise.mul(0.1)
    if "embedding.tokens" in name:
        return noise.mul(0.1)  # small beside what the blocks add, or a tied head repeats its input
    if "embedding" in name:
        return noise.mul(0.5)
    return noise.mul(shape[-1] ** -0.5)  # keeps the variance of what goes through
