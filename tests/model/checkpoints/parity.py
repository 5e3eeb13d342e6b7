"""Our model of a checkpoint beside the one of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.checkpoint import Checkpoint
from model.checkpoints import load_checkpoint
from model.generate import encode, generate_greedy, logits
from tests.model.checkpoints.tiny_references import save
from tests.model.references import reference_greedy

LENGTHS = torch.tensor([40, 1, 17])
PROMPT = [70, 8, 9]


def tiny_ids() -> Tensor:
    """Ids `[3, 40]` without special ones, for texts of `LENGTHS`."""
    return torch.randint(4, 250, (3, 40), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def reference_states(model: Any, ids: Tensor, lengths: Tensor) -> Tensor:
    """transformers' states `[B, S, d_model]` of padded texts."""
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    padding = model.config.pad_token_id or 0  # some families tell padding by the id alone
    states: Tensor = model(
        input_ids=ids.masked_fill(mask == 0, padding), attention_mask=mask
    ).last_hidden_state
    return states


def assert_same_states(ours: Tensor, theirs: Tensor, lengths: Tensor) -> None:
    """Compares the states `[B, S, d_model]` of the real tokens."""
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(ours[row, :length], theirs[row, :length], atol=1e-4, rtol=0)


def assert_encoder_parity(reference: Any, directory: Path) -> Checkpoint:
    """Saves the reference, loads it as ours and compares the states of several texts."""
    checkpoint = load_checkpoint(save(reference, directory))
    states = encode(checkpoint.build(), tiny_ids(), LENGTHS)
    assert_same_states(states, reference_states(reference, tiny_ids(), LENGTHS), LENGTHS)
    return checkpoint


def assert_decoder_parity(reference: Any, directory: Path) -> Checkpoint:
    """Saves the reference, loads it as ours and compares logits and greedy tokens."""
    checkpoint = load_checkpoint(save(reference, directory))
    model = checkpoint.build()
    ids = torch.randint(4, 250, (2, 120), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = reference(ids).logits
    torch.testing.assert_close(logits(model, ids)[0], expected, atol=1e-4, rtol=0)
    tokens = generate_greedy(model, PROMPT, 64)
    assert len(set(tokens)) > 1
    assert tokens == reference_greedy(reference, PROMPT, 64)
    return checkpoint
