"""reference.npz: inputs and eager outputs, so that an artefact can be checked without its source.

encoder   `input_ids`, `positions`, `pad_map`, `unpad_map`, `lengths` of one batch, `embeddings`
decoder   steps of one row, one after the other on one cache: `step.{i}.input_ids [1, S]`,
          `step.{i}.logit_positions [n]` and `step.{i}.logits [n, vocab]`
both      the encoder's batch as sources, then steps of as many rows, one token each:
          `step.{i}.input_ids [B, 1]` and `step.{i}.logits [B, vocab]`
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from export.artefact_files import FileContent
from export.decoder_run import DecoderRun
from export.encoder_checks import random_texts, reference_embeddings, run_packed
from export.manifest import REFERENCE_FILE, GraphSpec, Limits, ManifestError
from export.packing import PACKED_INPUTS, pack
from export.parity import Check, Tolerance, compare
from export.passage import passage_rows
from export.source_run import encode_sources
from export.target_expectations import passage_targets, target_logits
from model.config import Pooling
from model.generate import logits
from model.transformer import Transformer

Arrays = dict[str, NDArray[Any]]

_TEXTS = (1, 7, 40)  # tokens of each text
_STEPS = (17, 1, 1, 5, 1)  # new tokens of each step
_TARGET_STEPS = 5  # of one token each
_NAME = "reference"
_STORED = "stored reference"


def encoder_reference(model: Transformer, pooling: Pooling, max_input: int) -> Arrays:
    """One batch of an encoder."""
    texts = random_texts(model.config.vocab_size, [min(length, max_input) for length in _TEXTS])
    return {**pack(texts), "embeddings": reference_embeddings(model, pooling, texts)}


def decoder_reference(model: Transformer, tokenizer: bytes, max_positions: int) -> Arrays:
    """Some steps of a decoder; each asks for the logits of its last token."""
    length = min(sum(_STEPS), max_positions)
    tokens = passage_rows(tokenizer, model.config.decoder_vocab_size, rows=1, length=length)
    wanted = logits(model, torch.from_numpy(tokens))[0][0].numpy()  # [length, vocab]
    arrays: Arrays = {}
    start = 0
    for index, size in enumerate(_STEPS):
        step = tokens[:, start : start + size]
        if not step.size:
            break
        arrays[f"step.{index}.input_ids"] = step
        arrays[f"step.{index}.logit_positions"] = np.array([step.size - 1])
        arrays[f"step.{index}.logits"] = wanted[start + step.size - 1 :][:1]
        start += size
    return arrays


def encoder_decoder_reference(
    model: Transformer,
    pooling: Pooling,
    tokenizer: bytes,
    target_tokenizer: bytes,
    start: int,
    limits: Limits,
) -> Arrays:
    """One batch of sources, and the first steps of their targets."""
    lengths = [min(length, limits.max_input) for length in _TEXTS]
    rows = passage_rows(tokenizer, model.config.vocab_size, len(lengths), max(lengths))
    sources = [row[:length] for row, length in zip(rows, lengths, strict=True)]
    targets = passage_targets(
        target_tokenizer,
        model.config.decoder_vocab_size,
        start,
        len(sources),
        min(_TARGET_STEPS, limits.max_positions),
    )
    arrays: Arrays = {**pack(sources), "embeddings": reference_embeddings(model, pooling, sources)}
    wanted = target_logits(model, sources, targets)
    for step in range(targets.shape[1]):
        arrays[f"step.{step}.input_ids"] = targets[:, step : step + 1]
        arrays[f"step.{step}.logits"] = wanted[:, step]
    return arrays


def write_reference(path: Path, arrays: Arrays) -> None:
    """Writes the arrays; the same arrays give the same bytes."""
    np.savez(path, allow_pickle=False, **arrays)


def read_reference(content: FileContent) -> Arrays:
    """What `write_reference` wrote.

    Raises:
        ManifestError: it is nothing of the kind.
    """
    try:
        with np.load(BytesIO(content[:])) as stored:
            return dict(stored)
    except (BadZipFile, EOFError, OSError, ValueError) as error:
        raise ManifestError(f"{REFERENCE_FILE} cannot be read: {error}") from None


def compare_reference(
    content: FileContent, wanted: Arrays, tolerance: Tolerance
) -> Iterator[Check]:
    """What is stored beside what the source gives: inputs exactly, outputs within the bound."""
    stored = read_reference(content)
    for name in sorted(stored.keys() ^ wanted.keys()):
        note = "is not stored" if name in wanted else "is none of the reference's"
        yield Check(_STORED, name, None, 0.0, note)
    for name in sorted(stored.keys() & wanted.keys()):
        if np.issubdtype(wanted[name].dtype, np.integer):
            yield compare(_STORED, name, stored[name], wanted[name], bound=0.0)
        else:
            yield tolerance.compare(_STORED, name, stored[name], wanted[name])


def replay_encoder(
    reference: Arrays, session: ort.InferenceSession, tolerance: Tolerance
) -> Iterator[Check]:
    """Runs the stored batch and compares."""
    inputs = {name: reference[name] for name in PACKED_INPUTS}
    wanted = reference["embeddings"]
    found = run_packed(session, inputs)
    yield tolerance.compare(_NAME, f"batch {len(wanted)}", found, wanted)


def replay_decoder(
    reference: Arrays, session: ort.InferenceSession, graph: GraphSpec, tolerance: Tolerance
) -> Iterator[Check]:
    """Runs the stored steps and compares each."""
    steps = _steps(reference)
    inputs = [reference[f"step.{step}.input_ids"] for step in steps]
    run = DecoderRun(session, graph, slots=1, capacity=sum(ids.shape[1] for ids in inputs))
    past = 0
    for step, input_ids in zip(steps, inputs, strict=True):
        positions = reference[f"step.{step}.logit_positions"].tolist()
        found = run.step(input_ids, [past], logit_positions=positions)
        shape = f"past {past}, {input_ids.shape[1]} new tokens"
        yield tolerance.compare(_NAME, shape, found, reference[f"step.{step}.logits"])
        past += input_ids.shape[1]


def replay_encoder_decoder(
    reference: Arrays,
    encoder: ort.InferenceSession,
    decoder: ort.InferenceSession,
    graph: GraphSpec,
    tolerance: Tolerance,
) -> Iterator[Check]:
    """Runs the stored sources, then the stored steps of their targets, and compares each."""
    yield from replay_encoder(reference, encoder, tolerance)
    lengths = reference["lengths"].tolist()
    sources = np.split(reference["input_ids"], np.cumsum(lengths)[:-1])
    steps = _steps(reference)
    run = DecoderRun(decoder, graph, len(sources), len(steps), max(lengths))
    encoded = encode_sources(encoder, sources)
    for slot, length in enumerate(lengths):
        run.read_source(slot, encoded, slot, length)
    for past, step in enumerate(steps):
        found = run.step(reference[f"step.{step}.input_ids"], [past] * len(sources))
        shape = f"batch {len(sources)}, past {past}"
        yield tolerance.compare(_NAME, shape, found, reference[f"step.{step}.logits"])


def _steps(reference: Arrays) -> list[int]:
    """The numbers of the stored steps."""
    return sorted({int(name.split(".")[1]) for name in reference if name.startswith("step.")})
