"""Tiny random models of transformers, saved the way that real checkpoints are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

from tests.checkpoints import VOCABULARY, byte_tokenizer


def tiny_bert(**changes: Any) -> Any:
    """A BERT, every parameter random; `changes` go to its configuration."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 72,
        "max_position_embeddings": 40,
    }
    return _random(BertModel(BertConfig(**(sizes | changes))))


def tiny_llama(**changes: Any) -> Any:
    """A Llama, every parameter random; `changes` go to its configuration."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "intermediate_size": 72,
        "max_position_embeddings": 128,
        "bos_token_id": 2,
        "eos_token_id": [1, 3],
        "pad_token_id": 0,
        "tie_word_embeddings": True,
    }
    return _random(LlamaForCausalLM(LlamaConfig(**(sizes | changes))))


def save(model: Any, directory: Path, **options: Any) -> Path:
    """Saves a model with the byte tokenizer; `options` go to `save_pretrained`."""
    model.save_pretrained(directory, **options)
    is_bert = isinstance(model, BertModel)
    byte_tokenizer(bracketed=is_bert).save(str(directory / "tokenizer.json"))
    return directory


def _random(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            noise = noise * 0.1
        elif parameter.dim() == 1:  # the gain of a norm
            noise = noise * 0.2 + 1.0
        elif "embed_tokens" in name:
            noise = noise * 0.1
        else:
            noise = noise * parameter.shape[-1] ** -0.5
        parameter.data = noise
    return model.eval()
