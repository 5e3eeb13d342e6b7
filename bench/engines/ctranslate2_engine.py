"""CTranslate2: one call generates for a whole batch."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import ctranslate2

from bench.engines.engine import Generated, Ids


class CTranslate2Engine:
    """A directory that CTranslate2's converter wrote; `compute_type` is float32 or int8."""

    def __init__(self, model: Path, threads: int, compute_type: str) -> None:
        self._generator = ctranslate2.Generator(
            str(model), device="cpu", compute_type=compute_type, intra_threads=threads
        )
        self._tokens: list[str] = json.loads((model / "vocabulary.json").read_text())

    def generate(self, prompts: Sequence[Ids], new_tokens: int) -> Generated:
        began = time.perf_counter()
        seconds = [0.0] * new_tokens
        counts = [0] * len(prompts)

        def note(step: ctranslate2.GenerationStepResult) -> bool:
            seconds[counts[step.batch_id]] = time.perf_counter() - began
            counts[step.batch_id] += 1
            return False

        results = self._generator.generate_batch(
            [[self._tokens[token] for token in prompt] for prompt in prompts],
            max_length=new_tokens,
            min_length=new_tokens,
            beam_size=1,
            sampling_topk=1,
            include_prompt_in_result=False,
            callback=note,
        )
        return Generated([result.sequences_ids[0] for result in results], seconds)
