"""Texts that could not fit whatever their tokens are, refused by their bytes alone."""

from __future__ import annotations

import pytest
from formerd.v1 import embedding_pb2, generation_pb2
from tokenizers import Encoding

from server.conversion.embedding import read_embed_request
from server.conversion.prompt import read_prompt
from server.conversion.text_size import check_text_size, most_text_bytes
from server.errors import InputTooLong
from server.tokenizer import Tokenizer
from tests.checkpoints import byte_tokenizer
from tests.server.manifests import encoder_manifest

LIMIT = 8  # tokens
MOST = 1 << 16  # bytes of so few


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(byte_tokenizer().to_str().encode())


def test_many_tokens_may_have_as_many_bytes_as_the_longest_spells(tokenizer: Tokenizer) -> None:
    longest = max(map(len, map(str.encode, byte_tokenizer().get_vocab())))
    assert tokenizer.longest_token_bytes == longest
    assert most_text_bytes(1_000_000, tokenizer) == 1_000_000 * longest
    assert most_text_bytes(1, tokenizer) == MOST


def test_bytes_are_counted_not_characters(tokenizer: Tokenizer) -> None:
    check_text_size("prompt", "é" * (MOST // 2), 1, tokenizer)
    with pytest.raises(InputTooLong, match=f"prompt has {MOST + 2} bytes; .* {MOST} bytes"):
        check_text_size("prompt", "é" * (MOST // 2 + 1), 1, tokenizer)


class Untouchable(Tokenizer):
    """Fails where anything is tokenised."""

    def encode(self, *_: object, **__: object) -> list[int]:
        raise AssertionError("the text was tokenised")

    control_spans = encode  # type: ignore[assignment]


@pytest.fixture
def untouchable() -> Untouchable:
    return Untouchable(byte_tokenizer().to_str().encode())


def test_a_text_to_embed_is_refused_before_any_is_tokenised(untouchable: Tokenizer) -> None:
    inputs = [embedding_pb2.EmbedInput(text=text) for text in ("fine", "x" * (MOST + 1))]
    message = embedding_pb2.EmbedRequest(inputs=inputs)
    with pytest.raises(InputTooLong, match=r"^inputs\[1\]\.text has"):
        read_embed_request(message, encoder_manifest(), LIMIT, untouchable, 1 << 20)


def test_a_text_to_be_cut_may_have_any_size(tokenizer: Tokenizer) -> None:
    text = "x y " * MOST
    inputs = [embedding_pb2.EmbedInput(text=text)]
    message = embedding_pb2.EmbedRequest(inputs=inputs, truncate=True)
    work = read_embed_request(message, encoder_manifest(), LIMIT, tokenizer, 1 << 20)
    assert list(work.items[0].ids) == tokenizer.truncate(tokenizer.encode(text), LIMIT)
    assert work.truncated == (True,)


def test_of_a_text_to_be_cut_little_is_tokenised(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    encode = tokenizer._encode

    def counting(text: str, *arguments: bool, **options: bool) -> Encoding:
        seen.append(len(text))
        return encode(text, *arguments, **options)

    monkeypatch.setattr(tokenizer, "_encode", counting)
    inputs = [embedding_pb2.EmbedInput(text="x y " * MOST), embedding_pb2.EmbedInput(text="x")]
    message = embedding_pb2.EmbedRequest(inputs=inputs, truncate=True)
    read_embed_request(message, encoder_manifest(), LIMIT, tokenizer, 1 << 20)
    assert seen == [MOST, 1]


def test_a_text_that_is_one_long_word_cannot_be_cut(tokenizer: Tokenizer) -> None:
    inputs = [embedding_pb2.EmbedInput(text="x" * (MOST + 1))]
    message = embedding_pb2.EmbedRequest(inputs=inputs, truncate=True)
    with pytest.raises(InputTooLong, match=rf"^inputs\[0\]\.text has {MOST + 1} characters"):
        read_embed_request(message, encoder_manifest(), LIMIT, tokenizer, 1 << 20)


def test_prompts_and_messages_are_refused_by_name(untouchable: Tokenizer) -> None:
    long = "x" * (LIMIT * untouchable.longest_token_bytes + MOST)
    turns = [generation_pb2.ChatMessage(role="user", content=text) for text in ("fine", long)]
    for message, field in (
        (generation_pb2.GenerateRequest(prompt=long), "prompt"),
        (
            generation_pb2.GenerateRequest(chat=generation_pb2.Chat(messages=turns)),
            r"chat\.messages\[1\]\.content",
        ),
    ):
        with pytest.raises(InputTooLong, match=f"^{field} has"):
            read_prompt(message, LIMIT, untouchable, None)
