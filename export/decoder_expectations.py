"""What eager PyTorch says of some texts: all that a decoder's graph is compared with.

It is computed before the graph is opened, so that the model and the runtime's copy of its weights
are never in memory together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from export.passage import passage_rows
from model.generate import generate_greedy, logits
from model.transformer import Transformer

Ids = NDArray[np.int64]
Logits = NDArray[np.float32]

LONGEST_PROMPT = 128
_CAPACITY = 160
_TEXTS = 3
_PROMPT, _GREEDY = 8, 64


@dataclass(frozen=True)
class DecoderExpectations:
    """Texts, and what the model makes of them.

    Attributes:
        texts: `[texts, capacity]`.
        logits: `[texts, longest, vocab]`, of the first `LONGEST_PROMPT` tokens. Causality: those of
            a prefix are the first of a text's.
        greedy_prompt: the beginning of the first text.
        greedy_tokens: what the oracle continues it with.
        greedy_logits: `[tokens, vocab]`, from which each of those was chosen.
    """

    texts: Ids
    logits: Logits
    greedy_prompt: Ids
    greedy_tokens: tuple[int, ...]
    greedy_logits: Logits

    @property
    def capacity(self) -> int:
        """The length of the texts."""
        return int(self.texts.shape[1])

    def prompt(self, length: int, text: int = 0) -> Ids:
        """The first tokens of a text, `[length]`; after the last text comes the first again."""
        prompt: Ids = self.texts[text % len(self.texts), :length]
        return prompt

    def wanted(self, length: int, text: int = 0) -> Logits:
        """The logits `[length, vocab]` of a prompt of at most `LONGEST_PROMPT` tokens, everything
        computed at once."""
        wanted: Logits = self.logits[text % len(self.texts), :length]
        return wanted


def expect_of_decoder(
    model: Transformer, tokenizer: bytes, max_positions: int
) -> DecoderExpectations:
    """Asks the model; `tokenizer` is the content of tokenizer.json."""
    capacity = min(_CAPACITY, max_positions)
    texts = passage_rows(tokenizer, model.config.decoder_vocab_size, _TEXTS, capacity)
    prompt = texts[0, : min(_PROMPT, capacity)]
    steps = min(_GREEDY, capacity - len(prompt))
    tokens = generate_greedy(model, prompt.tolist(), steps)
    chosen_after = np.array([*prompt, *tokens[:-1]])[None]  # the last token decides nothing
    return DecoderExpectations(
        texts=texts,
        logits=np.concatenate([_logits(model, text[None, :LONGEST_PROMPT]) for text in texts]),
        greedy_prompt=prompt,
        greedy_tokens=tuple(tokens),
        greedy_logits=_logits(model, chosen_after)[0, len(prompt) - 1 :],
    )


def _logits(model: Transformer, ids: Ids) -> Logits:
    """`[B, S, vocab]` of ids `[B, S]`."""
    found: Logits = logits(model, torch.from_numpy(ids))[0].numpy()
    return found
