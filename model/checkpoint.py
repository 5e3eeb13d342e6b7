"""A checkpoint, read: the configuration, the weights under our names, and what else it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from model.config import Pooling, TransformerConfig
from model.transformer import Transformer


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says which file, what is wrong and what to do.

    Missing and unexpected tensors are listed all at once.
    """


@dataclass(frozen=True)
class Checkpoint:
    """What a family's table made of a checkpoint.

    Attributes:
        family: `bert`, `llama`, `native`, ...
        tensors: our parameter name -> fp32 tensor; exactly the names of the model's `state_dict`,
            but a tied parameter is there once, under the name that comes first.
        sources: our parameter name -> the checkpoint's tensor names that it was made from.
        unused: the checkpoint's tensor names that the family's table lists as unused.
        max_input: tokens of one text or source.
        eos_ids: every id that ends a completion.
        generation: the checkpoint's own generation settings, by transformers' names; for what they
            demand of every token, see `model.decoding_rules`.
        prompts: Sentence-Transformers prompts by name; `default_prompt` is a key of it.
        chat_tokens: `bos_token`, `eos_token`, ... as the chat template names them.
        tokenizer_json: the content of tokenizer.json, its padding and truncation switched off.
        target_tokenizer_json: the same for targets; None where they have the source's.
        decoder_start_id: what every target of an encoder-decoder begins with.
    """

    family: str
    config: TransformerConfig
    tensors: dict[str, Tensor]
    sources: dict[str, tuple[str, ...]]
    tokenizer_json: bytes
    max_input: int
    unused: tuple[str, ...] = ()
    target_tokenizer_json: bytes | None = None
    pooling: Pooling | None = None
    pad_id: int | None = None
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    decoder_start_id: int | None = None
    generation: dict[str, Any] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    chat_template: str | None = None
    chat_tokens: dict[str, str] = field(default_factory=dict)

    def build(self) -> Transformer:
        """The model with these weights, in evaluation mode.

        Raises:
            CheckpointError: a tensor is missing, left over, or of another shape or type; all are
                listed.
        """
        with torch.device("meta"):  # nothing is allocated before every shape is right
            expected = dict(Transformer(self.config).named_parameters())  # a tied one once
        problems = [f"missing {name}" for name in expected if name not in self.tensors]
        problems += [f"unexpected {name}" for name in self.tensors if name not in expected]
        problems += [
            f"{name} has shape {list(tensor.shape)} instead of {list(expected[name].shape)}"
            for name, tensor in self.tensors.items()
            if name in expected and tensor.shape != expected[name].shape
        ]
        problems += [
            f"{name} is of type {tensor.dtype}"
            for name, tensor in self.tensors.items()
            if not tensor.is_floating_point()
        ]
        if problems:
            raise CheckpointError("the checkpoint does not fit: " + "; ".join(sorted(problems)))
        model = Transformer(self.config)
        model.load_state_dict(self.tensors, strict=False)
        return model.eval()
