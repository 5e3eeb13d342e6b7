"""llama.cpp by its C interface, one sequence of the context for each prompt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from bench.engines.engine import Generated, Ids

_BATCH = 2048  # tokens of one call, llama.cpp's default


class LlamaCppEngine:
    """A .gguf file, in the precision that it was written in."""

    def __init__(self, model: Path, threads: int, sequences: int = 16, length: int = 1280) -> None:
        """`sequences` prompts of together `length` positions each are the most of one call."""
        llama_cpp.llama_backend_init()
        self._silence = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._silence, None)
        self._model = llama_cpp.llama_model_load_from_file(
            str(model).encode(), llama_cpp.llama_model_default_params()
        )
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = sequences * length
        parameters.n_seq_max = sequences
        parameters.n_batch = _BATCH
        parameters.n_threads = parameters.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocabulary_size = llama_cpp.llama_vocab_n_tokens(
            llama_cpp.llama_model_get_vocab(self._model)
        )
        self._batch: Any = llama_cpp.llama_batch_init(_BATCH, 0, 1)

    def generate(self, prompts: Sequence[Ids], new_tokens: int) -> Generated:
        began = time.perf_counter()
        llama_cpp.llama_memory_clear(self._memory, True)
        last = [self._prefill(sequence, prompt) for sequence, prompt in enumerate(prompts)]
        ids, seconds = [last], [time.perf_counter() - began]
        for step in range(new_tokens - 1):
            positions = [len(prompt) + step for prompt in prompts]
            last = self._decode(list(zip(last, range(len(prompts)), positions, strict=True)))
            ids.append(last)
            seconds.append(time.perf_counter() - began)
        return Generated([list(row) for row in zip(*ids, strict=True)], seconds)

    def _prefill(self, sequence: int, prompt: Ids) -> int:
        """The token after a prompt."""
        tokens = [(token, sequence, position) for position, token in enumerate(prompt)]
        for first in range(0, len(tokens), _BATCH):
            chosen = self._decode(tokens[first : first + _BATCH], only_last=True)
        return chosen[0]

    def _decode(self, tokens: list[tuple[int, int, int]], *, only_last: bool = False) -> list[int]:
        """The best next token after each of (token, sequence, position), or after the last."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        wanted = [len(tokens) - 1] if only_last else range(len(tokens))
        for index, (token, sequence, position) in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = sequence
            batch.logits[index] = index in wanted
        if status := llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode returned {status}")
        return [self._best(index) for index in wanted]

    def _best(self, index: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(self._context, index)
        return int(np.ctypeslib.as_array(logits, (self._vocabulary_size,)).argmax())
