"""Pronouncing words with a model, many at a time, in eager PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from tokenizers import Tokenizer
from torch import Tensor

from examples.g2p.batches import padded
from examples.g2p.dictionary import Pronunciation
from examples.g2p.vocabulary import END_ID, START_ID
from model.checkpoint import Checkpoint, CheckpointError
from model.generate import logits, remember
from model.transformer import Transformer

_WORDS_AT_ONCE = 256


class Pronouncer:
    """The likeliest phone each time, until the end."""

    def __init__(self, model: Transformer, spelling: Tokenizer, phones: Tokenizer) -> None:
        self._model = model
        self._spelling = spelling
        self._phones = phones

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """
        Raises:
            CheckpointError: the checkpoint has no tokenizer for phones.
        """
        if checkpoint.target_tokenizer_json is None:
            raise CheckpointError("the checkpoint has no target_tokenizer.json")
        return cls(
            checkpoint.build(),
            Tokenizer.from_buffer(checkpoint.tokenizer_json),
            Tokenizer.from_buffer(checkpoint.target_tokenizer_json),
        )

    def __call__(self, words: Sequence[str]) -> list[Pronunciation]:
        """A pronunciation for each word, in their order."""
        sources = [encoding.ids for encoding in self._spelling.encode_batch(list(words))]
        order = sorted(range(len(words)), key=lambda index: len(sources[index]))
        answers: dict[int, Pronunciation] = {}
        for start in range(0, len(order), _WORDS_AT_ONCE):
            chosen = order[start : start + _WORDS_AT_ONCE]
            targets = self._targets([sources[index] for index in chosen])
            texts = self._phones.decode_batch(targets)
            answers |= {i: tuple(text.split()) for i, text in zip(chosen, texts, strict=True)}
        return [answers[index] for index in range(len(words))]

    def _targets(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """The phones' ids of each source; of equally likely ones, the lowest."""
        lengths = torch.tensor([len(source) for source in sources])
        source = remember(self._model, padded(sources, END_ID), lengths)
        newest = torch.full((len(sources), 1), START_ID)  # [B, 1]
        past = None
        chosen: list[Tensor] = []
        ended = torch.zeros_like(newest, dtype=torch.bool)
        while not ended.all() and len(chosen) < self._model.config.max_positions - 1:
            scores, past = logits(self._model, newest, past, source)
            newest = scores.argmax(dim=-1)
            chosen.append(newest)
            ended |= newest == END_ID
        return [_until_end(row) for row in torch.cat(chosen, dim=1).tolist()]


def _until_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(END_ID)] if END_ID in ids else ids
