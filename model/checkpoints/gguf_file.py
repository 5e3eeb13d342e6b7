"""GGUF files, as llama.cpp reads them: one file with metadata, tokenizer and quantised tensors.

Specification: the GGUF document of the ggml project.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints.family import TensorTable, fit, refuse_other_than, require
from model.checkpoints.tokenizer_files import without_padding
from model.config import Activation, Kind, Norm, NormPlacement, Positions, TransformerConfig

if TYPE_CHECKING:
    from gguf import GGUFReader

_LAYER, _OURS = "blk.{layer}", "decoder.blocks.{layer}"
_NAMES = {
    "decoder.embedding.tokens": "token_embd",
    f"{_OURS}.attention_residual.norm": f"{_LAYER}.attn_norm",
    f"{_OURS}.attention.query": f"{_LAYER}.attn_q",
    f"{_OURS}.attention.key": f"{_LAYER}.attn_k",
    f"{_OURS}.attention.value": f"{_LAYER}.attn_v",
    f"{_OURS}.attention.output": f"{_LAYER}.attn_output",
    f"{_OURS}.feed_forward_residual.norm": f"{_LAYER}.ffn_norm",
    f"{_OURS}.feed_forward.gate": f"{_LAYER}.ffn_gate",
    f"{_OURS}.feed_forward.up": f"{_LAYER}.ffn_up",
    f"{_OURS}.feed_forward.down": f"{_LAYER}.ffn_down",
    "decoder.norm": "output_norm",
    "decoder.head": "output",
}
# Our field -> the metadata's, after the name of the architecture.
_FIELDS = {
    "d_model": "embedding_length",
    "heads": "attention.head_count",
    "d_ff": "feed_forward_length",
    "decoder_layers": "block_count",
    "max_positions": "context_length",
}
_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "general.architecture": ("llama",),
    "llama.rope.scaling.type": ("none",),
    "llama.expert_count": (0,),
}
_CHAT_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "pad_token": "padding_token_id",
    "unk_token": "unknown_token_id",
}
_EOS_FIELDS = ("eos_token_id", "eot_token_id", "eom_token_id")


def half_split_rows(name: str, tensor: Tensor, config: TransformerConfig) -> Tensor:
    """Undoes llama.cpp's order of the query's and key's rows.

    It pairs the dimensions of rotary positions as (2i, 2i + 1); we pair them as (i, i + D / 2).
    """
    for projection, heads in (("query", config.heads), ("key", config.kv_heads)):
        if f".attention.{projection}." in name:
            pairs = tensor.view(heads, config.head_dim // 2, 2, *tensor.shape[1:])
            return pairs.transpose(1, 2).reshape(tensor.shape)
    return tensor


TENSORS = TensorTable(names=_NAMES, convert=half_split_rows)


def configure(metadata: dict[str, Any], shapes: dict[str, list[int]]) -> TransformerConfig:
    """The metadata of the architecture `llama` as our configuration.

    What the metadata does not say (the size of the vocabulary, biases, an output head of its own)
    is told by the tensors: their shapes, the fastest axis first, by name.

    Raises:
        CheckpointError: it lacks a size, or asks for what formerd does not do.
        ConfigError: a size makes no sense.
    """
    refuse_other_than(metadata, _ACCEPTED, "metadata")
    values = {name.removeprefix("llama."): value for name, value in metadata.items()}
    require(values, _FIELDS.values(), "metadata of llama")
    require(shapes, ["token_embd.weight"], "the file")
    if "rope_freqs.weight" in shapes:
        raise CheckpointError("rope_freqs.weight scales the rotary angles, which is not supported")
    config = TransformerConfig.from_json(
        {
            "kind": Kind.DECODER,
            "vocab_size": shapes["token_embd.weight"][-1],
            **{ours: values[theirs] for ours, theirs in _FIELDS.items()},
            "kv_heads": values.get("attention.head_count_kv", 0),
            "head_dim": values.get("attention.key_length", 0),
            "positions": Positions.ROTARY,
            "rope_theta": _decimal(values.get("rope.freq_base", 10_000.0)),
            "norm": Norm.RMS,
            "norm_eps": _decimal(values.get("attention.layer_norm_rms_epsilon", 1e-5)),
            "norm_placement": NormPlacement.PRE,
            "activation": Activation.SILU,
            "gated": True,
            "attention_bias": "blk.0.attn_q.bias" in shapes,
            "output_bias": "blk.0.attn_output.bias" in shapes,
            "ff_bias": "blk.0.ffn_up.bias" in shapes,
            "tied_head": "output.weight" not in shapes,
        }
    )
    widths = ("rope.dimension_count", "attention.value_length")
    refuse_other_than(values, dict.fromkeys(widths, (config.head_dim,)), "metadata of llama")
    return config


def load_gguf(path: Path) -> Checkpoint:
    """Reads a GGUF file, its weights dequantised to fp32.

    Raises:
        CheckpointError, ConfigError: as `load_checkpoint`.
    """
    reader = _open(path)
    metadata = _read_scalars(reader)
    shapes = {tensor.name: [int(length) for length in tensor.shape] for tensor in reader.tensors}
    config = configure(metadata, shapes)
    fitted = fit(TENSORS, config, {tensor.name: _dequantise(tensor) for tensor in reader.tensors})
    tokenizer = {
        name.removeprefix("tokenizer.ggml."): value
        for name, value in metadata.items()
        if name.startswith("tokenizer.ggml.")
    }
    return Checkpoint(
        family="llama",
        config=config,
        tensors=fitted.tensors,
        sources=fitted.sources,
        unused=fitted.unused,
        tokenizer_json=_read_tokenizer(path),
        max_input=config.max_positions,
        pad_id=tokenizer.get("padding_token_id"),
        bos_id=tokenizer.get("bos_token_id"),
        eos_ids=_eos_ids(tokenizer),
        chat_template=metadata.get("tokenizer.chat_template"),
        chat_tokens=_chat_tokens(reader, tokenizer),
    )


def _open(path: Path) -> GGUFReader:
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except (OSError, ValueError, IndexError, KeyError) as error:  # its reader checks little
        raise CheckpointError(f"cannot read {path}: {error}") from None


def _read_scalars(reader: GGUFReader) -> dict[str, Any]:
    """The metadata without its arrays, which hold a tokenizer and take seconds to unpack."""
    from gguf import GGUFValueType

    return {
        name: field.contents()
        for name, field in reader.fields.items()
        if field.types[0] != GGUFValueType.ARRAY
    }


def _dequantise(tensor: Any) -> Tensor:
    from gguf import dequantize

    try:
        values = dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError:
        raise CheckpointError(
            f"{tensor.name} is stored as {tensor.tensor_type.name}, which cannot be dequantised"
        ) from None
    return torch.from_numpy(np.array(values, dtype=np.float32))  # a copy: the file is mapped


def _read_tokenizer(path: Path) -> bytes:
    """The tokenizer that transformers makes of the metadata."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path.parent, gguf_file=path.name, local_files_only=True
        )
    except Exception as error:  # transformers raises what it comes across
        raise CheckpointError(f"{path.name} holds no tokenizer that can be read: {error}") from None
    return without_padding(tokenizer.backend_tokenizer.to_str())


def _eos_ids(tokenizer: dict[str, Any]) -> tuple[int, ...]:
    ids = (tokenizer[name] for name in _EOS_FIELDS if name in tokenizer)
    return tuple(dict.fromkeys(ids))


def _chat_tokens(reader: GGUFReader, tokenizer: dict[str, Any]) -> dict[str, str]:
    """The special tokens as they are spelled, under the names that chat templates know."""
    spellings = reader.fields["tokenizer.ggml.tokens"]
    return {
        name: spellings.contents(tokenizer[field])
        for name, field in _CHAT_TOKENS.items()
        if field in tokenizer
    }


def _decimal(value: float) -> float:
    """The shortest decimal that is this number in fp32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))
