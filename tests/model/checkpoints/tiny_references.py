"""Tiny models of transformers, saved the way that real checkpoints are.

Every parameter is random, biases and norm gains too; `changes` go to the configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5ForConditionalGeneration,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from tests.checkpoints import VOCABULARY, byte_tokenizer

_BERT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 72,
    "max_position_embeddings": 40,
}
_LLAMA: dict[str, Any] = {
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
# The stacks differ in depth, and many tokens end a target, so that beams of all lengths do.
_BART: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 72,
    "decoder_ffn_dim": 72,
    "max_position_embeddings": 128,
    "bos_token_id": 2,
    "eos_token_id": [1, *range(30, 100)],
    "forced_eos_token_id": 1,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
_T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 48,
    "d_kv": 16,
    "d_ff": 72,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 12,
    "relative_attention_max_distance": 25,
    "eos_token_id": [1, *range(30, 100)],
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}


def tiny_bert(**changes: Any) -> Any:
    """A BERT."""
    return _random(BertModel(BertConfig(**(_BERT | changes))))


def tiny_roberta(**changes: Any) -> Any:
    """A RoBERTa of 40 positions, counted from its padding id + 1."""
    sizes = _BERT | {"max_position_embeddings": 42, "type_vocab_size": 1}
    return _random(RobertaModel(RobertaConfig(**(sizes | changes))))


def tiny_xlm_roberta(**changes: Any) -> Any:
    """An XLM-RoBERTa of 40 positions, counted from its padding id + 1."""
    sizes = _BERT | {"max_position_embeddings": 42, "type_vocab_size": 1}
    return _random(XLMRobertaModel(XLMRobertaConfig(**(sizes | changes))))


def tiny_distilbert(**changes: Any) -> Any:
    """A DistilBERT."""
    sizes = {
        "vocab_size": VOCABULARY,
        "dim": 48,
        "n_layers": 3,
        "n_heads": 4,
        "hidden_dim": 72,
        "max_position_embeddings": 40,
    }
    return _random(DistilBertModel(DistilBertConfig(**(sizes | changes))))


def tiny_gpt2(**changes: Any) -> Any:
    """A GPT-2."""
    sizes = {
        "vocab_size": VOCABULARY,
        "n_embd": 48,
        "n_layer": 3,
        "n_head": 6,
        "n_positions": 128,
        "bos_token_id": 1,
        "eos_token_id": 1,
    }
    return _random(GPT2LMHeadModel(GPT2Config(**(sizes | changes))))


def tiny_llama(**changes: Any) -> Any:
    """A Llama."""
    return _random(LlamaForCausalLM(LlamaConfig(**(_LLAMA | changes))))


def tiny_mistral(**changes: Any) -> Any:
    """A Mistral, whose window is as long as its positions."""
    sizes = _LLAMA | {"sliding_window": 128}
    return _random(MistralForCausalLM(MistralConfig(**(sizes | changes))))


def tiny_qwen2(**changes: Any) -> Any:
    """A Qwen2."""
    return _random(Qwen2ForCausalLM(Qwen2Config(**(_LLAMA | changes))))


def tiny_bart(**changes: Any) -> Any:
    """A BART; its output bias is random, too."""
    return _with_output_bias(_random(BartForConditionalGeneration(BartConfig(**(_BART | changes)))))


def tiny_marian(**changes: Any) -> Any:
    """A Marian; its output bias is random, too."""
    settings = {"activation_function": "swish", "scale_embedding": True} | changes
    return _with_output_bias(_random(MarianMTModel(MarianConfig(**(_BART | settings)))))


def tiny_t5(**changes: Any) -> Any:
    """A T5; its head is tied unless `tie_word_embeddings` is False."""
    model = T5ForConditionalGeneration(T5Config(**(_T5 | changes)))
    if not model.config.scale_decoder_outputs:  # transformers would tie what it makes anew
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.shared.weight))
    _random(model)
    model.shared.weight.data *= 10  # a tied head divides the logits
    for name, parameter in model.named_parameters():
        if name.endswith(".q.weight"):  # nothing else scales the scores
            parameter.data *= model.config.d_kv**-0.5
    return model


ENCODERS: dict[str, Callable[..., Any]] = {
    "bert": tiny_bert,
    "distilbert": tiny_distilbert,
    "roberta": tiny_roberta,
    "xlm-roberta": tiny_xlm_roberta,
}
DECODERS: dict[str, Callable[..., Any]] = {
    "gpt2": tiny_gpt2,
    "llama": tiny_llama,
    "mistral": tiny_mistral,
    "qwen2": tiny_qwen2,
}
ENCODER_DECODERS: dict[str, Callable[..., Any]] = {
    "bart": tiny_bart,
    "marian": tiny_marian,
    "t5": tiny_t5,
}
FAMILIES = ENCODERS | DECODERS | ENCODER_DECODERS  # every family that transformers has, too


def save(model: Any, directory: Path, **options: Any) -> Path:
    """Saves a model with the byte tokenizer; `options` go to `save_pretrained`."""
    model.save_pretrained(directory, **options)
    byte_tokenizer(bracketed=not model.can_generate()).save(str(directory / "tokenizer.json"))
    return directory


def _with_output_bias(model: Any) -> Any:
    noise = torch.randn(model.final_logits_bias.shape, generator=torch.Generator().manual_seed(1))
    model.final_logits_bias.copy_(noise * 0.3)
    return model


def _random(model: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:  # computed
            continue
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            noise = noise * 0.1
        elif parameter.dim() == 1:  # the gain of a norm
            noise = noise * 0.2 + 1.0
        elif any(part in name for part in ("embed_tokens", "wte", "shared")):
            noise = noise * 0.1  # beside what the blocks add, or a tied head repeats its input
        else:
            noise = noise * parameter.shape[-1] ** -0.5
        parameter.data = noise
    return model.eval()
