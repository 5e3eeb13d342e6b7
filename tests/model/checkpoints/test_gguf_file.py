"""GGUF files: tiny ones written here as llama.cpp's converter does, and the real SmolLM2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints import load_checkpoint
from model.checkpoints.gguf_file import configure
from model.generate import generate_greedy, logits
from model.transformer import Transformer
from tests.checkpoints import CHAT_TEMPLATE, byte_tokenizer
from tests.model.checkpoints.tiny_references import tiny_llama
from tests.model.references import reference_greedy, smollm2_file, smollm2_tokenizer

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def interleaved(tensor: Tensor, heads: int) -> Tensor:
    """The rows of each head as llama.cpp's rotary wants them: first and second half in turn."""
    rows = []
    for head in tensor.chunk(heads):
        first, second = head.chunk(2)
        rows += [row for pair in zip(first, second, strict=True) for row in pair]
    return torch.stack(rows)


def write_gguf(path: Path, model: Any, kind: str = "F32", **metadata: int | str) -> Path:
    """Writes a Llama of transformers; matrices are stored as `kind`, vectors in fp32."""
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for name, value in metadata.items():
        add = writer.add_uint32 if isinstance(value, int) else writer.add_string
        add(name, value)
    _write_tokenizer(writer)
    for name, parameter in model.named_parameters():
        tensor = parameter.detach()
        if "q_proj" in name:
            tensor = interleaved(tensor, config.num_attention_heads)
        if "k_proj" in name:
            tensor = interleaved(tensor, config.num_key_value_heads)
        for theirs, short in _NAMES.items():
            name = name.replace(theirs, short)
        stored = gguf.GGMLQuantizationType["F32" if tensor.dim() == 1 else kind]
        data = gguf.quantize(tensor.numpy().astype(np.float32), stored)
        writer.add_tensor(name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_tokenizer(writer: Any) -> None:
    vocabulary = byte_tokenizer().get_vocab()
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [3 if token.startswith("<") and len(token) > 1 else 1 for token in tokens]
    )
    writer.add_token_merges(["t h", "th e", "Ġ the"])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_eot_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True},
        {"num_key_value_heads": 6},
    ],
    ids=["grouped", "biased", "plain"],
)
def test_tiny_random_logits(tmp_path: Path, changes: dict[str, Any]) -> None:
    reference = tiny_llama(**changes)
    checkpoint = load_checkpoint(write_gguf(tmp_path / "tiny.gguf", reference))
    ids = torch.randint(4, 250, (2, 50), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = reference(ids).logits
    torch.testing.assert_close(logits(checkpoint.build(), ids)[0], expected, atol=1e-4, rtol=0)


def test_quantised_weights_are_within_the_error_of_the_format(tmp_path: Path) -> None:
    reference = tiny_llama(hidden_size=96, intermediate_size=64)
    exact = load_checkpoint(write_gguf(tmp_path / "exact.gguf", reference)).tensors
    coarse = load_checkpoint(write_gguf(tmp_path / "coarse.gguf", reference, "Q8_0")).tensors
    assert {tensor.dtype for tensor in coarse.values()} == {torch.float32}
    for name, tensor in exact.items():
        worst = float((coarse[name] - tensor).abs().max())
        step = float(tensor.abs().max()) / 127  # at most: each block has a scale of its own
        assert worst <= (0 if tensor.dim() == 1 else step / 2 * 1.01), name
        assert (worst > 0) == (tensor.dim() > 1), name


def test_what_the_file_says(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(write_gguf(tmp_path / "tiny.gguf", tiny_llama()))
    assert (checkpoint.pad_id, checkpoint.bos_id, checkpoint.eos_ids) == (0, 2, (1, 3))
    assert checkpoint.chat_template == CHAT_TEMPLATE
    assert checkpoint.chat_tokens == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|endoftext|>",
        "pad_token": "<pad>",
    }
    assert checkpoint.sources["decoder.blocks.1.attention.key.weight"] == ("blk.1.attn_k.weight",)
    assert checkpoint.unused == ()
    assert load_checkpoint(tmp_path).sources == checkpoint.sources  # alone in its directory


METADATA = {
    "general.architecture": "llama",
    "llama.embedding_length": 8,
    "llama.attention.head_count": 2,
    "llama.feed_forward_length": 9,
    "llama.block_count": 1,
    "llama.context_length": 7,
}


@pytest.mark.parametrize(
    ("change", "shapes", "named"),
    [
        ({"general.architecture": "mamba"}, {}, ["general.architecture", "mamba", "llama"]),
        ({"llama.rope.scaling.type": "linear"}, {}, ["llama.rope.scaling.type", "linear"]),
        ({"llama.expert_count": 8}, {}, ["llama.expert_count", "8"]),
        ({"llama.rope.dimension_count": 2}, {}, ["rope.dimension_count", "2", "4"]),
        ({"llama.attention.value_length": 5}, {}, ["attention.value_length", "5", "4"]),
        ({"llama.context_length": None}, {}, ["lacks context_length"]),
        ({}, {"rope_freqs.weight": [4]}, ["rope_freqs.weight", "not supported"]),
    ],
)
def test_refusals(change: dict[str, Any], shapes: dict[str, list[int]], named: list[str]) -> None:
    with pytest.raises(CheckpointError) as refusal:
        configure(METADATA | change, {"token_embd.weight": [8, 30]} | shapes)
    for part in named:
        assert part in str(refusal.value)


def test_numbers_of_single_precision_are_read_as_they_were_meant() -> None:
    metadata = METADATA | {"llama.attention.layer_norm_rms_epsilon": float(np.float32(1e-5))}
    assert configure(metadata, {"token_embd.weight": [8, 30]}).norm_eps == 1e-5


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\3\0\0\0" + b"\xff" * 40])
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.gguf").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"cannot read .*bad\.gguf"):
        load_checkpoint(tmp_path)


def test_a_file_cut_short(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_llama())
    path.write_bytes(path.read_bytes()[:-5_000])
    with pytest.raises(CheckpointError, match=r"cannot read .*tiny\.gguf"):
        load_checkpoint(path)


@pytest.mark.xdist_group("smollm2")
class TestSmolLM2:
    """The real file against transformers, which reads it by itself."""

    PROMPT = "The capital of France is"

    def test_logits(self, smollm2_model: Transformer, smollm2_reference: Any) -> None:
        ids = torch.randint(17, 49_000, (1, 100), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            expected = smollm2_reference(ids).logits
        torch.testing.assert_close(logits(smollm2_model, ids)[0], expected, atol=1e-4, rtol=0)

    def test_greedy_tokens(
        self, smollm2: Checkpoint, smollm2_model: Transformer, smollm2_reference: Any
    ) -> None:
        tokenizer = Tokenizer.from_str(smollm2.tokenizer_json.decode())
        prompt = tokenizer.encode(self.PROMPT).ids
        tokens = generate_greedy(smollm2_model, prompt, 64)
        assert tokens == reference_greedy(smollm2_reference, prompt, 64)
        assert tokenizer.decode(tokens).startswith(" Paris.\n\nThe answer is: 2018-01-22")

    def test_tokenizer_and_chat_template(self, smollm2: Checkpoint) -> None:
        reference = smollm2_tokenizer()
        tokenizer = Tokenizer.from_str(smollm2.tokenizer_json.decode())
        for text in ["", " ", "Hello, world 123", "naïve 東京 🎉\n\n  x", "<|im_end|>"]:
            assert tokenizer.encode(text).ids == reference(text).input_ids
        assert smollm2.chat_template == reference.chat_template

    def test_settings(self, smollm2: Checkpoint) -> None:
        assert (smollm2.pad_id, smollm2.bos_id, smollm2.eos_ids) == (2, 1, (2,))
        assert smollm2.config.max_positions == smollm2.max_input == 8_192
        assert smollm2.config.norm_eps == 1e-5
        stored = {tensor.name for tensor in gguf.GGUFReader(smollm2_file()).tensors}
        assert {name for names in smollm2.sources.values() for name in names} == stored
        assert smollm2.unused == ()
