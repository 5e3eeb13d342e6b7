"""The text that drift is measured on."""

from __future__ import annotations

from tokenizers import Tokenizer

from export.corpus import corpus_texts, corpus_tokens
from tests.checkpoints import TURN_END_ID, TURN_START_ID, VOCABULARY, byte_tokenizer

TOKENIZER = byte_tokenizer(bracketed=True).to_str().encode()


def test_there_are_as_many_tokens_as_wanted_and_they_are_text() -> None:
    tokens = corpus_tokens(TOKENIZER, VOCABULARY, 3000)
    assert tokens.shape == (3000,)
    text = Tokenizer.from_buffer(TOKENIZER).decode(tokens.tolist())
    assert "assert" in text
    assert TURN_START_ID not in tokens


def test_sentences_are_read_as_a_model_reads_them() -> None:
    texts = corpus_texts(TOKENIZER, VOCABULARY, 1000, longest=500)
    assert len(texts) == 1000
    assert {int(text[0]) for text in texts} == {TURN_START_ID}
    assert {int(text[-1]) for text in texts} == {TURN_END_ID}
    decode = Tokenizer.from_buffer(TOKENIZER).decode
    decoded = [decode(text.tolist()) for text in texts]
    assert len(set(decoded)) > 900
    assert all(20 <= len(text) <= 400 for text in decoded)


def test_sentences_are_cut_and_unknown_ids_left_out() -> None:
    texts = corpus_texts(TOKENIZER, 100, 50, longest=8)
    assert all(1 <= len(text) <= 8 and text.max() < 100 for text in texts)
