"""CTranslate2: one call translates a whole batch of sources."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import ctranslate2
from transformers import AutoTokenizer

from bench.engines.conversion import make, to_ctranslate2
from bench.engines.engine import Ids


class CTranslate2Translator:
    """A directory of an encoder-decoder that `save_pretrained` wrote, converted once, in fp32."""

    def __init__(self, model: Path, threads: int) -> None:
        converted = model.with_name(f"{model.name}-ct2")
        make(converted, partial(to_ctranslate2, model))
        self._translator = ctranslate2.Translator(
            str(converted), device="cpu", compute_type="float32", intra_threads=threads
        )
        self._tokenizer = AutoTokenizer.from_pretrained(model)

    def translate(self, sources: Sequence[Ids], new_tokens: Sequence[int]) -> list[list[int]]:
        """A row ends at its own length, and is computed no further."""
        counts = [0] * len(sources)

        def ended(step: ctranslate2.GenerationStepResult) -> bool:
            row: int = step.batch_id
            counts[row] += 1
            return counts[row] == new_tokens[row]

        results = self._translator.translate_batch(
            [self._tokenizer.convert_ids_to_tokens(source) for source in sources],
            beam_size=1,
            min_decoding_length=max(new_tokens),
            max_decoding_length=max(new_tokens),
            callback=ended,
        )
        return [self._tokenizer.convert_tokens_to_ids(each.hypotheses[0]) for each in results]
