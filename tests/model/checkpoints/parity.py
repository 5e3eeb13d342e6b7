"""Our model of a checkpoint beside the one of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.beam_search import Beam, search_beams
from model.checkpoint import Checkpoint
from model.checkpoints import load_checkpoint
from model.decoding_rules import DecodingRules
from model.generate import encode, generate_greedy, logits, remember
from model.transformer import Transformer
from tests.model.checkpoints.tiny_references import save
from tests.model.references import reference_greedy

LENGTHS = torch.tensor([40, 1, 17])
PROMPT = [70, 8, 9]
_NEW_TOKENS = 12


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


def assert_encoder_decoder_parity(
    reference: Any, directory: Path, penalties: Sequence[float] = (0.5,)
) -> Checkpoint:
    """Saves the reference, loads it as ours and compares states, logits, greedy and beam tokens."""
    checkpoint = load_checkpoint(save(reference, directory))
    model, ids = checkpoint.build(), tiny_ids()
    states = encode(model, ids, LENGTHS)
    assert_same_states(states, reference_states(reference.get_encoder(), ids, LENGTHS), LENGTHS)
    targets = ids.flip(1)[:, :30]
    targets[:, 0] = _prompt(checkpoint)[0]
    scores, _ = logits(model, targets, source=remember(model, ids, LENGTHS))
    expected = reference_target_logits(reference, ids, LENGTHS, targets)
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
    beams = []
    for row, length in enumerate(LENGTHS.tolist()):
        source = ids[row : row + 1, :length]
        assert_same_tokens(checkpoint, model, reference, source)
        for penalty in penalties:
            beams += assert_same_beams(checkpoint, model, reference, source, penalty)
    assert len({len(beam.tokens) for beam in beams}) > 1  # or nothing is known of their ends
    return checkpoint


@torch.no_grad()
def reference_target_logits(model: Any, ids: Tensor, lengths: Tensor, targets: Tensor) -> Tensor:
    """transformers' logits `[B, S, V]` of targets `[B, S]`, given padded sources."""
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    scores: Tensor = model(input_ids=ids, attention_mask=mask, decoder_input_ids=targets).logits
    return scores


def assert_same_tokens(
    checkpoint: Checkpoint, model: Transformer, reference: Any, source: Tensor
) -> None:
    """Compares greedy tokens under the checkpoint's rules, for one source `[1, K]`."""
    expected = reference.generate(source, max_new_tokens=_NEW_TOKENS, do_sample=False, num_beams=1)
    tokens = generate_greedy(
        model,
        _prompt(checkpoint),
        _NEW_TOKENS,
        eos_ids=checkpoint.eos_ids,
        source=remember(model, source, torch.tensor([source.shape[1]])),
        rules=DecodingRules.from_settings(checkpoint.generation, checkpoint.eos_ids),
    )
    assert tokens == expected[0, 1:].tolist()


def assert_same_beams(
    checkpoint: Checkpoint, model: Transformer, reference: Any, source: Tensor, penalty: float
) -> list[Beam]:
    """Compares all of 4 beams; those whose scores are almost equal may stand for one another."""
    expected = reference.generate(
        source,
        max_new_tokens=_NEW_TOKENS,
        do_sample=False,
        num_beams=4,
        num_return_sequences=4,
        length_penalty=penalty,
        early_stopping=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    beams = search_beams(
        model,
        _prompt(checkpoint),
        _NEW_TOKENS,
        width=4,
        length_penalty=penalty,
        eos_ids=checkpoint.eos_ids,
        source=remember(model, source, torch.tensor([source.shape[1]])),
        rules=DecodingRules.from_settings(checkpoint.generation, checkpoint.eos_ids),
    )
    assert len(beams) == 4
    for beam, theirs, score in zip(
        beams, expected.sequences[:, 1:].tolist(), expected.sequences_scores.tolist(), strict=True
    ):
        assert abs(beam.score - score) < 1e-4
        tokens, padding = theirs[: len(beam.tokens)], theirs[len(beam.tokens) :]
        same = tuple(tokens) == beam.tokens and len(set(padding)) <= 1
        assert same or min(abs(beam.score - b.score) for b in beams if b is not beam) < 1e-4
    return beams


def _prompt(checkpoint: Checkpoint) -> list[int]:
    assert checkpoint.decoder_start_id is not None
    return [checkpoint.decoder_start_id]


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
