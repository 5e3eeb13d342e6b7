"""A Marian of the size of OPUS-MT's models, with random weights: no time depends on their values.

python -m bench.random_marian DIRECTORY
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel

VOCABULARY = 58_101  # that of opus-mt-en-de
END_ID, UNKNOWN_ID, PAD_ID = 0, 1, VOCABULARY - 1
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # types of pieces


def write_random_marian(directory: Path) -> None:
    """The files of a checkpoint as transformers writes them, always the same."""
    directory.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            d_model=512,
            encoder_layers=6,
            decoder_layers=6,
            encoder_attention_heads=8,
            decoder_attention_heads=8,
            encoder_ffn_dim=2048,
            decoder_ffn_dim=2048,
            max_position_embeddings=512,
            activation_function="swish",
            scale_embedding=True,
            eos_token_id=END_ID,
            pad_token_id=PAD_ID,
            decoder_start_token_id=PAD_ID,
            init_std=0.05,  # wide enough for targets to differ with their sources
        )
    )
    model.generation_config = GenerationConfig(
        bad_words_ids=[[PAD_ID]],
        eos_token_id=END_ID,
        pad_token_id=PAD_ID,
        decoder_start_token_id=PAD_ID,
        max_length=512,
    )
    model.save_pretrained(directory)
    _write_tokenizer(directory)


def _write_tokenizer(directory: Path) -> None:
    """Every token is a word, its number in letters."""
    words = [f"▁{_in_letters(number)}" for number in range(VOCABULARY - 3)]
    tokens = ["</s>", "<unk>", *words, "<pad>"]
    ids = {token: index for index, token in enumerate(tokens)}
    (directory / "vocab.json").write_text(json.dumps(ids))
    messages: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # it has no types
    pieces = messages.ModelProto()
    pieces.trainer_spec.model_type = pieces.trainer_spec.UNIGRAM
    for piece, kind in (("<unk>", _UNKNOWN), ("<s>", _CONTROL), ("</s>", _CONTROL)):
        pieces.pieces.add(piece=piece, score=0.0, type=kind)
    for index, word in enumerate(words):
        pieces.pieces.add(piece=word, score=-float(index), type=_NORMAL)
    for side in ("source", "target"):
        (directory / f"{side}.spm").write_bytes(pieces.SerializeToString())
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def _in_letters(number: int) -> str:
    letters = ""
    while number or not letters:
        number, digit = divmod(number, 26)
        letters = chr(ord("a") + digit) + letters
    return letters


if __name__ == "__main__":
    write_random_marian(Path(sys.argv[1]))
