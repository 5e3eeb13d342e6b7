"""Answers to Tokenize and Detokenize."""

from __future__ import annotations

from formerd.v1 import models_pb2 as pb

from server.conversion.answer_size import check_response_size
from server.errors import OverLimit
from server.tokenizer import Tokenizer

_MOST_BYTES_A_TOKEN = 24  # one character with its id and its place in the text


def tokenize(
    message: pb.TokenizeRequest, tokenizer: Tokenizer, max_response_bytes: int
) -> pb.TokenizeResponse:
    """The tokens of a text.

    Raises:
        OverLimit: more than one response can hold, if each byte of the text were a token.
    """
    if (size := len(message.text.encode()) * _MOST_BYTES_A_TOKEN) > max_response_bytes:
        raise OverLimit(
            f"text: its tokens could take {size} bytes; the response limit (--max-response-bytes) "
            f"is {max_response_bytes}: send it in parts"
        )
    add = not message.HasField("add_special_tokens") or message.add_special_tokens
    tokens = tokenizer.encode_with_offsets(message.text, add_special_tokens=add)
    response = pb.TokenizeResponse(
        tokens=[pb.Token(id=t.id, text=t.text, start=t.start, end=t.end) for t in tokens]
    )
    check_response_size(response, max_response_bytes)
    return response


def detokenize(
    message: pb.DetokenizeRequest, tokenizer: Tokenizer, max_response_bytes: int
) -> pb.DetokenizeResponse:
    """The text of ids.

    Raises:
        InvalidInput: an id is not in the vocabulary.
        OverLimit: a text larger than one response can hold.
    """
    skip = not message.HasField("skip_special_tokens") or message.skip_special_tokens
    response = pb.DetokenizeResponse(text=tokenizer.decode(list(message.ids), skip))
    check_response_size(response, max_response_bytes)
    return response
