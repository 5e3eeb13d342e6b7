"""transformers in eager PyTorch: a loop around the model, without the overhead of `generate`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from bench.engines.engine import Generated, Ids


class TransformersEngine:
    """A directory that `save_pretrained` wrote, in fp32."""

    def __init__(self, model: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self._pad = self._model.config.pad_token_id

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Ids], new_tokens: int) -> Generated:
        began = time.perf_counter()
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        ids = torch.tensor(
            [[self._pad] * n + [*prompt] for n, prompt in zip(padding, prompts, strict=True)]
        )
        real = torch.tensor([[0] * n + [1] * (longest - n) for n in padding])
        positions = (real.cumsum(1) - 1).clamp(min=0)
        cache, chosen, seconds = DynamicCache(), [], []
        for _ in range(new_tokens):
            output = self._model(
                input_ids=ids,
                attention_mask=real if any(padding) else None,  # the fast path has no mask
                position_ids=positions,
                past_key_values=cache,
                logits_to_keep=1,
            )
            ids = output.logits[:, -1].argmax(-1, keepdim=True)
            chosen.append(ids)
            seconds.append(time.perf_counter() - began)
            real = torch.cat([real, torch.ones_like(ids)], dim=1)
            positions = positions[:, -1:] + 1
        return Generated(torch.cat(chosen, dim=1).tolist(), seconds)
