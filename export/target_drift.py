"""How far targets of an encoder-decoder of less precision have moved from the model in fp32.

There is no text that every such model was made for, translation, summary or pronunciation, so they
are measured on what the model itself writes in fp32, greedily, for the corpus's sentences: how
probable the graphs find those targets, token by token, and how often another token is likeliest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from export.corpus import corpus_texts
from export.decoder_run import DecoderRun
from export.generation_drift import GenerationDrift, Tally
from export.manifest import GraphSpec, Limits
from export.packing import Ids
from export.source_checks import remember_sources
from export.source_run import encode_sources
from model.generate import logits
from model.transformer import Transformer

_SENTENCES = 96
_LONGEST_SOURCE = 128
_LONGEST_TARGET = 32
_BATCH = 32
TEXT = f"targets of at most {_LONGEST_TARGET} tokens that fp32 writes for {_SENTENCES} sentences"

Logits = NDArray[np.float32]


@dataclass(frozen=True)
class WrittenTargets:
    """What the model writes for some sources in fp32.

    Attributes:
        tokens: `[sources, positions + 1]`, from the start token on.
        logits: `[positions, sources, vocab]`, from which each was chosen.
        lengths: how many positions of each count: up to the one that ends its target.
    """

    tokens: Ids
    logits: Logits
    lengths: NDArray[np.int64]


def target_drift(
    model: Transformer,
    encoder: ort.InferenceSession,
    decoder: ort.InferenceSession,
    graph: GraphSpec,
    tokenizer: bytes,
    limits: Limits,
    start: int,
    ends: Collection[int],
) -> GenerationDrift:
    """Has the model in fp32 write targets, and reads them with the graphs.

    Args:
        tokenizer: the content of tokenizer.json, that of the sources.
        start: what every target begins with.
        ends: the ids that end one.
    """
    longest = min(_LONGEST_SOURCE, limits.max_input)
    sources = corpus_texts(tokenizer, model.config.vocab_size, _SENTENCES, longest)
    sources.sort(key=len)  # so that the model computes little padding
    positions = min(_LONGEST_TARGET, limits.max_positions)
    tally = Tally()
    for first in range(0, len(sources), _BATCH):
        batch = sources[first:][:_BATCH]
        written = write_targets(model, batch, start, ends, positions)
        found = _read_targets(batch, written.tokens, encoder, decoder, graph)
        for past, scores in enumerate(found):
            counts = past < written.lengths  # [sources]
            targets = written.tokens[counts, past + 1]
            tally.add(scores[counts], written.logits[past][counts], targets)
    return tally.drift(TEXT)


def write_targets(
    model: Transformer,
    sources: Sequence[Ids],
    start: int,
    ends: Collection[int],
    positions: int,
) -> WrittenTargets:
    """Greedily, all sources at once; rows go on beyond their end, where nothing counts."""
    source, past = remember_sources(model, sources), None
    tokens = torch.full((len(sources), 1), start)
    scores = []
    for _ in range(positions):
        following, past = logits(model, tokens[:, -1:], past, source)
        scores.append(following[:, -1].numpy())
        tokens = torch.cat((tokens, following[:, -1:].argmax(dim=-1)), dim=1)
    ended = np.isin(tokens.numpy()[:, 1:], list(ends))
    lengths = np.where(ended.any(axis=1), ended.argmax(axis=1) + 1, positions)
    return WrittenTargets(tokens.numpy(), np.stack(scores), lengths)


def _read_targets(
    sources: Sequence[Ids],
    tokens: Ids,
    encoder: ort.InferenceSession,
    decoder: ort.InferenceSession,
    graph: GraphSpec,
) -> Iterator[Logits]:
    """The graphs' logits `[sources, vocab]` after each token but the last."""
    positions = tokens.shape[1] - 1
    run = DecoderRun(decoder, graph, len(sources), positions, max(map(len, sources)))
    encoded = encode_sources(encoder, sources)
    for slot, source in enumerate(sources):
        run.read_source(slot, encoded, slot, len(source))
    for past in range(positions):
        yield run.step(tokens[:, past : past + 1], [past] * len(sources))
