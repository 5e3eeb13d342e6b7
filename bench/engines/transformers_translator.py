"""transformers in eager PyTorch: `generate` for a whole batch of sources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM

from bench.engines.engine import Ids


class TransformersTranslator:
    """A directory of an encoder-decoder that `save_pretrained` wrote, in fp32."""

    def __init__(self, model: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        self._model = AutoModelForSeq2SeqLM.from_pretrained(model, dtype=torch.float32).eval()
        self._pad = self._model.config.pad_token_id

    @torch.inference_mode()
    def translate(self, sources: Sequence[Ids], new_tokens: Sequence[int]) -> list[list[int]]:
        """Every row runs to the longest target: `generate` computes those that have ended too."""
        longest = max(map(len, sources))
        padding = [longest - len(source) for source in sources]
        pairs = list(zip(sources, padding, strict=True))
        targets = self._model.generate(
            torch.tensor([[*source, *[self._pad] * n] for source, n in pairs]),
            attention_mask=torch.tensor([[1] * len(source) + [0] * n for source, n in pairs]),
            do_sample=False,
            num_beams=1,
            min_new_tokens=max(new_tokens),
            max_new_tokens=max(new_tokens),
        )
        begun = targets[:, 1:].tolist()  # without the start
        return [target[:count] for target, count in zip(begun, new_tokens, strict=True)]
