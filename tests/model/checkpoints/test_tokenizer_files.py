"""The tokenizer of a checkpoint: read, made of older files, and held against the vocabulary."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint, tokenizer_files
from model.checkpoints.tokenizer_files import check_vocabularies, read_tokenizer
from tests.checkpoints import (
    DECODER,
    ENCODER_DECODER,
    VOCABULARY,
    byte_tokenizer,
    tiny_checkpoint,
    write_decoder,
)

TEXT = "A keeper's lamp, twice: 12 naïve cafés — 東京 🎉"


def test_padding_and_truncation_are_switched_off(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.enable_padding(length=50)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    read = Tokenizer.from_str(read_tokenizer(tmp_path).decode())
    assert read.encode("a longer text").ids == byte_tokenizer().encode("a longer text").ids


def test_lowercasing_comes_first(tmp_path: Path) -> None:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    read = Tokenizer.from_str(read_tokenizer(tmp_path, lowercase=True).decode())
    assert read.encode("ÄB").ids == byte_tokenizer().encode("äb").ids


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"has no tokenizer\.json; .*save_pretrained"),
        ({"vocab.json": "{}"}, r"has no tokenizer\.json; .*save_pretrained"),
        ({"tokenizer.json": "{}"}, "holds no tokenizer"),
        (
            {"config.json": '{"model_type": "llama"}', "tokenizer.model": "no model"},
            r"no tokenizer\.json, and tokenizer\.model cannot be converted: .*save_pretrained",
        ),
        (
            {"vocab.txt": "a", "tokenizer_config.json": '{"auto_map": {"AutoTokenizer": "own.T"}}'},
            r"custom code \(auto_map\), never run",
        ),
    ],
)
def test_refusals(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        read_tokenizer(tmp_path)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny sentencepiece model, as Llama's and Mistral's."""
    directory = tmp_path_factory.mktemp("pieces")
    (directory / "corpus.txt").write_text("the lamp and the sea and the keeper of the lamp\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(directory / "corpus.txt"),
        model_prefix=str(directory / "tokenizer"),
        model_type="bpe",
        vocab_size=290,
        byte_fallback=True,
        minloglevel=2,
    )
    (directory / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return directory


def test_sentence_pieces_are_converted(pieces: Path) -> None:
    reference = sentencepiece.SentencePieceProcessor(str(pieces / "tokenizer.model"))
    tokenizer = Tokenizer.from_str(read_tokenizer(pieces).decode())
    for text in ("the keeper and the lamp", TEXT):
        expected = reference.encode(text)
        assert tokenizer.encode(text, add_special_tokens=False).ids == expected
        assert tokenizer.decode(expected) == text


def test_sentence_pieces_of_xlm_roberta_are_converted(tmp_path: Path) -> None:
    """Ids are one further on than the pieces: four special tokens take the place of three."""
    (tmp_path / "corpus.txt").write_text("the lamp and the sea and the keeper of the lamp\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "corpus.txt"),
        model_prefix=str(tmp_path / "sentencepiece.bpe"),
        model_type="unigram",
        vocab_size=19,
        minloglevel=2,
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "xlm-roberta"}))
    tokenizer = Tokenizer.from_str(read_tokenizer(tmp_path).decode())
    reference = sentencepiece.SentencePieceProcessor(str(tmp_path / "sentencepiece.bpe.model"))
    for text in ("the keeper and the lamp", "keepers of  the sea"):
        expected = [index + 1 if index > 2 else 3 for index in reference.encode(text)]
        assert tokenizer.encode(text).ids == [0, *expected, 2]


def test_sentence_pieces_without_their_package(
    pieces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> object:
        return None if name == "sentencepiece" else find_spec(name)

    monkeypatch.setattr(tokenizer_files, "find_spec", find)
    with pytest.raises(CheckpointError, match=r"tokenizer\.model .* pip install sentencepiece"):
        read_tokenizer(pieces)


def test_a_vocabulary_and_merges_are_converted(tmp_path: Path) -> None:
    byte_tokenizer().model.save(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    tokenizer = Tokenizer.from_str(read_tokenizer(tmp_path).decode())
    ids = byte_tokenizer().encode(TEXT).ids
    assert tokenizer.encode(TEXT).ids == ids
    assert tokenizer.decode(ids) == TEXT


def test_a_word_piece_vocabulary_is_converted(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "lamp", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    tokenizer = Tokenizer.from_str(read_tokenizer(tmp_path).decode())
    assert tokenizer.encode("The lamps").tokens == ["[CLS]", "the", "lamp", "##s", "[SEP]"]


def test_ids_beyond_the_vocabulary_name_the_token_and_the_size(tmp_path: Path) -> None:
    write_decoder(tmp_path)
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["<new>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(CheckpointError, match=f"'<new>' the id {VOCABULARY}.* {VOCABULARY} ent"):
        load_checkpoint(tmp_path)


def test_a_model_may_have_more_rows_than_its_tokenizer_has_ids() -> None:
    check_vocabularies(tiny_checkpoint(replace(DECODER, vocab_size=VOCABULARY + 1)))


def test_the_targets_vocabulary_is_held_against_its_own_tokenizer() -> None:
    tokenizer = byte_tokenizer().to_str().encode()
    config = replace(ENCODER_DECODER, target_vocab_size=VOCABULARY - 1)
    checkpoint = replace(tiny_checkpoint(config), target_tokenizer_json=tokenizer)
    with pytest.raises(CheckpointError, match=f"has {VOCABULARY - 1} entries"):
        check_vocabularies(checkpoint)
