"""From the input of a request to generate, and what a target begins with, to ids."""

from __future__ import annotations

from formerd.v1 import generation_pb2 as pb

from server.chat import ChatMessage, ChatTemplate, encode_chat
from server.conversion.ranges import check_ids
from server.conversion.text_size import check_text_size
from server.errors import InvalidInput
from server.tokenizer import Tokenizer


def read_prompt(
    message: pb.GenerateRequest,
    most: int,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
) -> tuple[str, list[int]]:
    """The field that holds the input, and the ids that it comes to: a prompt, or a source.

    Raises:
        InvalidInput: there is no input, it has no tokens, or the model cannot read it.
        InputTooLong: a text has more bytes than `most` tokens can have.
        OverLimit: a conversation that renders too large or too slowly.
    """
    match message.WhichOneof("input"):
        case "prompt":
            check_text_size("prompt", message.prompt, most, tokenizer)
            parse = _may_spell_control_tokens(message)
            field = "prompt"
            ids = tokenizer.encode(message.prompt, parse_control_tokens=parse)
        case "chat":
            for index, turn in enumerate(message.chat.messages):
                check_text_size(f"chat.messages[{index}].content", turn.content, most, tokenizer)
            field, ids = "chat", _encode_chat(message, tokenizer, template)
        case "tokens":
            field, ids = "tokens", list(message.tokens.ids)
            check_ids("tokens.ids", ids, tokenizer.vocabulary_size)
        case _:
            raise InvalidInput("input is missing; set one of prompt, chat and tokens")
    if not ids:
        raise InvalidInput(f"{field} has no tokens; give at least one")
    return field, ids


def read_decoder_prompt(
    message: pb.GenerateRequest, most: int, tokenizer: Tokenizer
) -> tuple[str, list[int]]:
    """The field that says how the target begins, and the ids that it comes to.

    A target of which nothing is said has none. No special token is added: a target begins with
    the start token, which is no part of this.

    Raises:
        InvalidInput: it has no tokens, or ids outside of the vocabulary.
        InputTooLong: a text has more bytes than `most` tokens can have.
    """
    if not message.HasField("decoder_prompt"):
        return "decoder_prompt", []
    given = message.decoder_prompt
    match given.WhichOneof("prompt"):
        case "text":
            field = "decoder_prompt.text"
            check_text_size(field, given.text, most, tokenizer)
            parse = _may_spell_control_tokens(message)
            ids = tokenizer.encode(given.text, add_special_tokens=False, parse_control_tokens=parse)
        case "tokens":
            field, ids = "decoder_prompt.tokens", list(given.tokens.ids)
            check_ids(f"{field}.ids", ids, tokenizer.vocabulary_size)
        case _:
            raise InvalidInput("decoder_prompt has neither text nor tokens")
    if not ids:
        raise InvalidInput(f"{field} has no tokens; give at least one, or leave it unset")
    return field, ids


def _may_spell_control_tokens(message: pb.GenerateRequest) -> bool:
    """Whether a text that is no conversation may."""
    return not message.HasField("parse_control_tokens") or message.parse_control_tokens


def _encode_chat(
    message: pb.GenerateRequest, tokenizer: Tokenizer, template: ChatTemplate | None
) -> list[int]:
    if template is None:
        raise InvalidInput("chat is set, but this model has no chat template; use prompt")
    messages = [ChatMessage(each.role, each.content) for each in message.chat.messages]
    return encode_chat(messages, tokenizer, template, message.parse_control_tokens)
