"""How large the answer to a request to generate can become."""

from __future__ import annotations

from google.protobuf.message import Message

from server.errors import OverLimit
from server.request import GenerationRequest

_TOKEN_BYTES = 16  # its text and its id, as a rule
_LOGPROB_BYTES = 40  # one token with its text and its logarithm, as a rule


def check_answer_fits(wanted: GenerationRequest, max_response_bytes: int) -> None:
    """Refuses, before anything is computed, what would come out too large for one response.

    Raises:
        OverLimit: names the limit.
    """
    logprobs = 1 + wanted.output.top_logprobs if wanted.output.logprobs else 0
    tokens = wanted.n * wanted.stopping.max_new_tokens
    size = tokens * (_TOKEN_BYTES + logprobs * _LOGPROB_BYTES)
    if size > max_response_bytes:
        raise OverLimit(
            f"{tokens} new tokens with {logprobs} log-probabilities each are about {size} bytes; "
            f"the response limit (--max-response-bytes) is {max_response_bytes}: ask for fewer, "
            "or use GenerateStream"
        )


def check_response_size(response: Message, max_response_bytes: int) -> None:
    """Refuses a response that came out larger than foreseen.

    Raises:
        OverLimit: names the limit.
    """
    if (size := response.ByteSize()) > max_response_bytes:
        raise OverLimit(
            f"the response has {size} bytes; the response limit (--max-response-bytes) is "
            f"{max_response_bytes}: ask for less, or use GenerateStream"
        )
