"""What eager PyTorch says of some targets: all that a decoder with sources is compared with.

As in `export.decoder_expectations`, it is computed before the graphs are opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from export.manifest import Limits
from export.packing import Ids
from export.passage import passage_rows
from export.source_checks import passage_sources, remember_sources
from model.generate import generate_greedy, logits
from model.transformer import Transformer

Logits = NDArray[np.float32]

_POSITIONS = 40
_GREEDY, _GREEDY_SOURCE = 64, 1


@dataclass(frozen=True)
class TargetExpectations:
    """Sources with targets, and what the model makes of them.

    Attributes:
        sources: of several lengths, `[K]` each.
        targets: `[sources, positions]`, beginning with the start token.
        logits: `[sources, positions, vocab]`, everything computed at once.
        greedy_source: the one that the oracle was asked to go on from, from its start token.
        greedy_tokens: what it said.
        greedy_logits: `[tokens, vocab]`, from which each of those was chosen.
    """

    sources: tuple[Ids, ...]
    targets: Ids
    logits: Logits
    greedy_source: Ids
    greedy_tokens: tuple[int, ...]
    greedy_logits: Logits


def expect_of_targets(
    model: Transformer,
    tokenizer: bytes,
    target_tokenizer: bytes,
    start: int,
    limits: Limits,
) -> TargetExpectations:
    """Asks the model.

    Args:
        tokenizer, target_tokenizer: the contents of the tokenizers' files.
        start: what every target begins with.
    """
    sources = passage_sources(tokenizer, model.config.vocab_size, limits.max_input)
    positions = min(_POSITIONS, limits.max_positions)
    targets = passage_targets(
        target_tokenizer, model.config.decoder_vocab_size, start, len(sources), positions
    )
    source = sources[_GREEDY_SOURCE]
    remembered = remember_sources(model, [source])
    tokens = generate_greedy(
        model, [start], min(_GREEDY, limits.max_positions - 1), source=remembered
    )
    chosen_after = torch.tensor([[start, *tokens[:-1]]])  # the last token decides nothing
    return TargetExpectations(
        sources=tuple(sources),
        targets=targets,
        logits=target_logits(model, sources, targets),
        greedy_source=source,
        greedy_tokens=tuple(tokens),
        greedy_logits=logits(model, chosen_after, source=remembered)[0][0].numpy(),
    )


def passage_targets(
    tokenizer: bytes, vocab_size: int, start: int, rows: int, positions: int
) -> Ids:
    """`[rows, positions]`: the start token, then ordinary text; as `passage_rows`."""
    text = passage_rows(tokenizer, vocab_size, rows, positions - 1)
    return np.concatenate([np.full((rows, 1), start, dtype=np.int64), text], axis=1)


def target_logits(model: Transformer, sources: Sequence[Ids], targets: Ids) -> Logits:
    """PyTorch's logits `[rows, positions, vocab]`, everything computed at once."""
    scores, _ = logits(model, torch.from_numpy(targets), source=remember_sources(model, sources))
    found: Logits = scores.numpy()
    return found
