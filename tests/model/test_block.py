"""The blocks against torch.nn's own layers with the same weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from model.attention import MultiHeadAttention
from model.block import DecoderBlock, EncoderBlock
from model.config import NormPlacement, TransformerConfig
from model.eager_attention import (
    EagerCrossAttention,
    EagerSelfAttention,
    causal_mask,
    padding_mask,
)
from tests.checkpoints import ENCODER_DECODER

PLACEMENTS = list(NormPlacement)


def config_with(placement: NormPlacement) -> TransformerConfig:
    return replace(ENCODER_DECODER, norm_placement=placement)


def copy_attention(source: nn.MultiheadAttention, target: MultiHeadAttention) -> None:
    weights, biases = source.in_proj_weight.chunk(3), source.in_proj_bias.chunk(3)
    for linear, weight, bias in zip(
        (target.query, target.key, target.value), weights, biases, strict=True
    ):
        linear.weight.data, linear.bias.data = weight.clone(), bias.clone()
    target.output.load_state_dict(source.out_proj.state_dict())


def copy_block(
    source: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer,
    target: EncoderBlock | DecoderBlock,
) -> None:
    """Gives every parameter of the reference a random value, and the block the same."""
    generator = torch.Generator().manual_seed(0)
    for parameter in source.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
    copy_attention(source.self_attn, target.attention)
    target.feed_forward.up.load_state_dict(source.linear1.state_dict())
    target.feed_forward.down.load_state_dict(source.linear2.state_dict())
    norms = [target.attention_residual.norm, target.feed_forward_residual.norm]
    if isinstance(source, nn.TransformerDecoderLayer):
        assert isinstance(target, DecoderBlock)
        copy_attention(source.multihead_attn, target.cross_attention)
        norms.insert(1, target.cross_attention_residual.norm)
    for number, norm in enumerate(norms, start=1):
        norm.load_state_dict(getattr(source, f"norm{number}").state_dict())


def noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_encoder_block(placement: NormPlacement) -> None:
    config = config_with(placement)
    block = EncoderBlock(config).eval()
    reference = nn.TransformerEncoderLayer(
        config.d_model,
        config.heads,
        config.d_ff,
        batch_first=True,
        norm_first=placement is NormPlacement.PRE,
    ).eval()
    copy_block(reference, block)
    hidden, lengths = noise(2, 7, config.d_model, seed=1), torch.tensor([7, 3])
    ours = block(hidden, EagerSelfAttention(mask=padding_mask(lengths, 7)))
    theirs = reference(hidden, src_key_padding_mask=torch.arange(7) >= lengths[:, None])
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours[1, :3], theirs[1, :3], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_decoder_block_with_cross_attention(placement: NormPlacement) -> None:
    config = config_with(placement)
    block = DecoderBlock(config).eval()
    reference = nn.TransformerDecoderLayer(
        config.d_model,
        config.heads,
        config.d_ff,
        batch_first=True,
        norm_first=placement is NormPlacement.PRE,
    ).eval()
    copy_block(reference, block)
    target, source = noise(2, 6, config.d_model, seed=1), noise(2, 5, config.d_model, seed=2)
    lengths = torch.tensor([5, 2])
    ours, _ = block(
        target,
        EagerSelfAttention(mask=causal_mask(torch.arange(6).expand(2, 6), 6)),
        None,
        block.cross_attention.remember(source),
        EagerCrossAttention(padding_mask(lengths, 5)),
    )
    theirs = reference(
        target,
        source,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(6),
        memory_key_padding_mask=torch.arange(5) >= lengths[:, None],
        tgt_is_causal=True,
    )
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_dropout_in_training_only() -> None:
    block = EncoderBlock(replace(ENCODER_DECODER, dropout=0.5))
    hidden = noise(1, 4, ENCODER_DECODER.d_model, seed=0)
    attend = EagerSelfAttention()
    assert not torch.equal(block.train()(hidden, attend), block(hidden, attend))
    assert torch.equal(block.eval()(hidden, attend), block(hidden, attend))
