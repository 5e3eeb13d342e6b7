"""The oracle's beam search: everything is computed anew for each token, in eager PyTorch.

What Hugging Face transformers does with `num_beams`, `length_penalty` and its default of
`early_stopping`; the search of the server is judged against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from model.cache import LayerCache
from model.decoding_rules import NO_RULES, DecodingRules
from model.generate import Source, logits
from model.transformer import Transformer


class Beam(NamedTuple):
    """A continuation: its tokens, and the sum of their log-probabilities."""

    tokens: tuple[int, ...]
    score: float


@torch.inference_mode()
def search_beams(
    model: Transformer,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    width: int,
    length_penalty: float = 1.0,
    eos_ids: Sequence[int] = (),
    source: Source | None = None,
    rules: DecodingRules = NO_RULES,
) -> list[Beam]:
    """Continues one prompt in the `width` ways that are most probable together.

    Args:
        length_penalty: the power of its length by which a score is divided once a beam ends.

    The rest is as for `generate_greedy`.

    Returns:
        At most `width` beams that have ended, best first, with their penalised scores.
    """
    most = min(max_new_tokens, model.config.max_positions - len(prompt))
    running, ended = [Beam((), 0.0)], list[Beam]()
    for length in range(1, most + 1):
        weight = float(length) ** length_penalty
        candidates = _extend(model, prompt, running, most - length + 1, eos_ids, source, rules)
        running = []
        # Enough of them that ends alone cannot exhaust them.
        for rank, beam in enumerate(candidates[: max(2, 1 + len(eos_ids)) * width]):
            if length < most and beam.tokens[-1] not in eos_ids:
                running.append(beam)
            elif rank < width:
                ended.append(Beam(beam.tokens, beam.score / weight))
        running = running[:width]
        ended = sorted(ended, key=lambda beam: beam.score, reverse=True)[:width]
        # The present length stands for the final one: the rule of transformers.
        full = len(ended) == width
        if not running or (full and running[0].score / weight <= ended[-1].score):
            break
    return ended


def _extend(
    model: Transformer,
    prompt: Sequence[int],
    running: Sequence[Beam],
    room: int,
    eos_ids: Sequence[int],
    source: Source | None,
    rules: DecodingRules,
) -> list[Beam]:
    """Every beam with each token that may follow it, best first."""
    rows = [[*prompt, *beam.tokens] for beam in running]
    following, _ = logits(model, torch.tensor(rows), source=_repeated(source, len(rows)))
    candidates = []
    for beam, row, scores in zip(running, rows, following[:, -1].log_softmax(dim=-1), strict=True):
        allowed = rules.apply(scores, row, len(beam.tokens), room=room, ends=eos_ids)
        if rules.renormalised:
            allowed = allowed.log_softmax(dim=-1)
        candidates += [
            Beam((*beam.tokens, token), score)
            for token, score in enumerate((allowed + beam.score).tolist())
            if score > -torch.inf
        ]
    return sorted(candidates, key=lambda beam: beam.score, reverse=True)


def _repeated(source: Source | None, rows: int) -> Source | None:
    """The source of one row for each of several."""
    if source is None:
        return None
    memory = tuple(
        LayerCache(key.expand(rows, -1, -1, -1), value.expand(rows, -1, -1, -1))
        for key, value in source.memory
    )
    return Source(memory, source.lengths.expand(rows))
