"""A model with the numbers of a graph of less precision."""

from __future__ import annotations

import torch

from export.artefact import Artefact
from export.held_weights import hold_weights
from export.manifest import Precision
from tests.artefacts import decoder_artefact, quantised_decoder_artefact
from tests.checkpoints import DECODER, tiny_checkpoint


def test_what_is_quantised_is_rounded_and_the_rest_stays() -> None:
    before, after = tiny_checkpoint(DECODER).build(), tiny_checkpoint(DECODER).build()
    hold_weights(after, Artefact.open(quantised_decoder_artefact(Precision.INT4)))
    rounded = []
    for (name, source), held in zip(before.named_parameters(), after.parameters(), strict=True):
        if torch.equal(source, held):
            continue
        rounded.append(name)
        torch.testing.assert_close(
            held, source, rtol=0, atol=0.25 * float(source.detach().abs().max())
        )
    assert all("norm" not in name for name in rounded)
    assert len(rounded) == 1 + 7 * DECODER.decoder_layers  # the tied table, and linear layers
    assert after.decoder.head.weight is after.decoder.embedding.tokens.weight


def test_fp32_holds_what_it_is_given() -> None:
    before, after = tiny_checkpoint(DECODER).build(), tiny_checkpoint(DECODER).build()
    hold_weights(after, Artefact.open(decoder_artefact()))
    for source, held in zip(before.parameters(), after.parameters(), strict=True):
        assert torch.equal(source, held)
