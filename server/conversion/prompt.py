"""From the input of a request to generate to ids."""

from __future__ import annotations

from formerd.v1 import generation_pb2 as pb

from export.manifest import Manifest
from server.chat import ChatMessage, ChatTemplate, encode_chat
from server.conversion.ranges import check_ids
from server.conversion.text_size import check_text_size
from server.errors import InvalidInput
from server.tokenizer import Tokenizer


def read_prompt(
    message: pb.GenerateRequest,
    manifest: Manifest,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
) -> tuple[str, list[int]]:
    """The field that holds the input, and the ids that it comes to.

    Raises:
        InvalidInput: there is no input, it has no tokens, or the model cannot read it.
        InputTooLong: a text has more bytes than all positions of the model can take.
        OverLimit: a conversation that renders too large or too slowly.
    """
    most = manifest.limits.max_positions
    match message.WhichOneof("input"):
        case "prompt":
            check_text_size("prompt", message.prompt, most, tokenizer)
            field, ids = "prompt", _encode_text(message, tokenizer)
        case "chat":
            for index, turn in enumerate(message.chat.messages):
                check_text_size(f"chat.messages[{index}].content", turn.content, most, tokenizer)
            field, ids = "chat", _encode_chat(message, tokenizer, template)
        case "tokens":
            field, ids = "tokens", list(message.tokens.ids)
            check_ids("tokens.ids", ids, manifest.vocabulary_size)
        case _:
            raise InvalidInput("input is missing; set one of prompt, chat and tokens")
    if not ids:
        raise InvalidInput(f"{field} has no tokens; give at least one")
    return field, ids


def _encode_text(message: pb.GenerateRequest, tokenizer: Tokenizer) -> list[int]:
    parse = not message.HasField("parse_control_tokens") or message.parse_control_tokens
    return tokenizer.encode(message.prompt, parse_control_tokens=parse)


def _encode_chat(
    message: pb.GenerateRequest, tokenizer: Tokenizer, template: ChatTemplate | None
) -> list[int]:
    if template is None:
        raise InvalidInput("chat is set, but this model has no chat template; use prompt")
    messages = [ChatMessage(each.role, each.content) for each in message.chat.messages]
    return encode_chat(messages, tokenizer, template, message.parse_control_tokens)
