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
    size = wanted.n * _completion_bytes(wanted) + _prompt_bytes(wanted)
    _check(size, wanted, max_response_bytes, "ask for fewer, or use GenerateStream")


def check_events_fit(wanted: GenerationRequest, max_response_bytes: int) -> None:
    """Refuses, before anything is computed, what would come out too large for one event.

    The summary of a stream holds all of the prompt's log-probabilities, and a chunk of a beam
    search a whole completion.

    Raises:
        OverLimit: names the limit.
    """
    chunk = _completion_bytes(wanted) if wanted.beam else 0
    _check(max(chunk, _prompt_bytes(wanted)), wanted, max_response_bytes, "ask for fewer")


def check_response_size(response: Message, max_response_bytes: int) -> None:
    """Refuses a response that came out larger than foreseen.

    Raises:
        OverLimit: names the limit.
    """
    if (size := response.ByteSize()) > max_response_bytes:
        raise OverLimit(
            f"the response has {size} bytes; the response limit (--max-response-bytes) is "
            f"{max_response_bytes}: ask for less"
        )


def _completion_bytes(wanted: GenerationRequest) -> int:
    logprobs = 1 + wanted.output.top_logprobs if wanted.output.logprobs else 0
    return wanted.stopping.max_new_tokens * (_TOKEN_BYTES + logprobs * _LOGPROB_BYTES)


def _prompt_bytes(wanted: GenerationRequest) -> int:
    """What the log-probabilities of the prompt come to."""
    if not wanted.output.prompt_logprobs:
        return 0
    return len(wanted.prompt) * (1 + wanted.output.top_logprobs) * _LOGPROB_BYTES


def _check(size: int, wanted: GenerationRequest, most: int, remedy: str) -> None:
    if size <= most:
        return
    tokens = wanted.n * wanted.stopping.max_new_tokens
    of_prompt = len(wanted.prompt) if wanted.output.prompt_logprobs else 0
    listed = f"{tokens} new tokens"
    if of_prompt:
        listed += f" and log-probabilities of {of_prompt} prompt tokens"
    if wanted.output.top_logprobs:
        listed += f", with {wanted.output.top_logprobs} alternatives each,"
    raise OverLimit(
        f"{listed} are about {size} bytes; the response limit (--max-response-bytes) is {most}: "
        f"{remedy}"
    )
