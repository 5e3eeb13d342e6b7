"""The stacks: what order, causality and ties mean for a whole model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from model.cache import LayerCache
from model.checkpoint import Checkpoint
from model.config import Kind, NormPlacement, Positions, TransformerConfig
from model.eager_attention import EagerSelfAttention
from model.generate import encode, logits, remember
from model.transformer import Transformer
from tests.checkpoints import (
    DECODER,
    ENCODER,
    ENCODER_DECODER,
    LEARNED_DECODER,
    RELATIVE_ENCODER_DECODER,
    tiny_checkpoint,
)

IDS = torch.tensor([[5, 90, 17, 200, 33, 41, 8]])
PERMUTATION = torch.tensor([3, 0, 6, 2, 5, 1, 4])


def test_an_encoder_of_the_size_of_bert(minilm: Checkpoint) -> None:
    # MiniLM's vocabulary is the one of bert-base-uncased.
    tokenizer = Tokenizer.from_str(minilm.tokenizer_json.decode())
    ids = tokenizer.encode("Deep learning is simple.", add_special_tokens=False).ids
    assert ids == [2784, 4083, 2003, 3722, 1012]
    config = TransformerConfig(
        kind=Kind.ENCODER,
        vocab_size=30_522,
        d_model=768,
        heads=12,
        d_ff=3072,
        max_positions=512,
        encoder_layers=1,
    )
    states = encode(Transformer(config).eval(), torch.tensor([ids]), torch.tensor([5]))
    assert states.shape == (1, 5, 768)


@pytest.mark.parametrize("positions", list(Positions))
def test_only_positions_tell_the_order(positions: Positions) -> None:
    model = tiny_checkpoint(replace(ENCODER_DECODER, positions=positions)).build()
    lengths = torch.tensor([IDS.shape[1]])
    states = encode(model, IDS, lengths)[:, PERMUTATION]
    permuted = encode(model, IDS[:, PERMUTATION], lengths)
    difference = float((states - permuted).abs().max())
    assert (difference < 1e-5) == (positions is Positions.NONE)


@pytest.mark.parametrize(
    "config", [DECODER, LEARNED_DECODER, ENCODER_DECODER, RELATIVE_ENCODER_DECODER]
)
def test_a_decoder_never_sees_what_comes_later(config: TransformerConfig) -> None:
    model = tiny_checkpoint(config).build()
    source = remember(model, IDS, torch.tensor([7])) if config.has_encoder else None
    changed = IDS.clone()
    changed[:, 4:] = 7
    before, after = logits(model, IDS, source=source)[0], logits(model, changed, source=source)[0]
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4], after[:, 4], atol=1e-2)


def test_a_padded_text_is_encoded_like_alone() -> None:
    model = tiny_checkpoint(ENCODER).build()
    short = IDS[:, :3]
    batch = torch.cat((IDS, torch.nn.functional.pad(short, (0, 4), value=99)))
    together = encode(model, batch, torch.tensor([7, 3]))
    alone = encode(model, short, torch.tensor([3]))
    torch.testing.assert_close(together[1:, :3], alone, atol=1e-5, rtol=1e-5)


def test_a_target_reads_its_own_source() -> None:
    model = tiny_checkpoint(ENCODER_DECODER).build()
    sources = torch.cat((IDS, IDS.flip(1)))
    source = remember(model, sources, torch.tensor([7, 4]))
    together, _ = logits(model, IDS[:, :3].expand(2, 3), source=source)
    alone, _ = logits(model, IDS[:, :3], source=remember(model, sources[1:, :4], torch.tensor([4])))
    torch.testing.assert_close(together[1:], alone, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(together[0], together[1], atol=1e-2)


@pytest.mark.parametrize(
    ("config", "shared"),
    [
        (DECODER, {"decoder.head.weight", "decoder.embedding.tokens.weight"}),
        (
            ENCODER_DECODER,
            {"encoder.embedding.tokens.weight", "decoder.embedding.tokens.weight"},
        ),
        (
            replace(ENCODER_DECODER, tied_head=True),
            {
                "encoder.embedding.tokens.weight",
                "decoder.embedding.tokens.weight",
                "decoder.head.weight",
            },
        ),
        (
            replace(ENCODER_DECODER, tied_head=True, target_vocab_size=50),
            {"decoder.embedding.tokens.weight", "decoder.head.weight"},
        ),
    ],
)
def test_tied_parameters_are_one(config: TransformerConfig, shared: set[str]) -> None:
    parameters = dict(Transformer(config).named_parameters(remove_duplicate=False))
    tied = {
        name
        for name, parameter in parameters.items()
        if sum(parameter is other for other in parameters.values()) > 1
    }
    assert tied == shared


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_the_final_norm_comes_last(stack: str) -> None:
    config = replace(ENCODER_DECODER, norm_placement=NormPlacement.PRE)
    with_norm = tiny_checkpoint(replace(config, final_norm=True))
    kept = {
        name: tensor
        for name, tensor in with_norm.tensors.items()
        if not name.startswith(("encoder.norm.", "decoder.norm."))
    }
    without = replace(with_norm, config=config, tensors=kept).build()
    model = with_norm.build()
    positions, attend = torch.arange(7)[None], EagerSelfAttention()
    assert model.encoder.norm is not None
    assert model.decoder.norm is not None
    if stack == "encoder":
        states = model.encoder(IDS, positions, attend)
        expected = model.encoder.norm(without.encoder(IDS, positions, attend))
    else:
        states, _ = model.decoder(IDS, positions, attend)
        expected = model.decoder.norm(without.decoder(IDS, positions, attend)[0])
    torch.testing.assert_close(states, expected)


def test_token_embeddings_are_scaled() -> None:
    config = replace(DECODER, embedding_scale=3.0)
    model = tiny_checkpoint(config).build()
    embedded = model.decoder.embedding(IDS, torch.arange(7)[None])
    torch.testing.assert_close(embedded, model.decoder.embedding.tokens.weight[IDS] * 3.0)


def test_the_head_reads_scaled_states() -> None:
    checkpoint = tiny_checkpoint(replace(DECODER, head_scale=0.25))
    unscaled = replace(checkpoint, config=DECODER).build()
    torch.testing.assert_close(logits(checkpoint.build(), IDS)[0], logits(unscaled, IDS)[0] / 4)


def test_every_layer_has_a_memory_of_the_source() -> None:
    model = tiny_checkpoint(ENCODER_DECODER).build()
    states = torch.randn(2, 5, 64, generator=torch.Generator().manual_seed(0))
    projected = model.decoder.project_memory(states.flatten(0, 1))
    for memory, (key, value) in zip(model.decoder.remember(states), projected, strict=True):
        torch.testing.assert_close(memory.key.transpose(1, 2).flatten(0, 1), key)
        torch.testing.assert_close(memory.value.transpose(1, 2).flatten(0, 1), value)


def test_packed_texts_have_the_states_that_they_have_alone() -> None:
    model = tiny_checkpoint(RELATIVE_ENCODER_DECODER).build()
    texts = [IDS[0], IDS[0, :3].flip(0)]
    places = torch.arange(7)
    assert model.encoder.relative_bias is not None
    bias = model.encoder.relative_bias(places, places)  # [H, 7, 7]: one for all texts

    def attend(query: Tensor, key: Tensor, value: Tensor, _: LayerCache | None) -> Any:
        mixed = []
        for rows in (torch.arange(7), torch.arange(7, 10)):
            q, k, v = (states[rows].transpose(0, 1) for states in (query, key, value))
            weights = (q @ k.transpose(1, 2) + bias[:, : len(rows), : len(rows)]).softmax(dim=-1)
            mixed.append((weights @ v).transpose(0, 1))
        return torch.cat(mixed), None

    positions = torch.cat((places, places[:3]))
    states = model.encoder(torch.cat(texts), positions, attend)
    for text, found in zip(texts, (states[:7], states[7:]), strict=True):
        alone = encode(model, text[None], torch.tensor([len(text)]))[0]
        torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-5)
