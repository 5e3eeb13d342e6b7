"""What can be asked of a call, as keyword arguments; what is left out, the server decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict


@dataclass(frozen=True)
class Message:
    """One turn of a chat; the role is one of system, user, assistant, tool."""

    role: str
    content: str


class EmbedOptions(TypedDict, total=False):
    """Fields of `formerd.v1.EmbedRequest`."""

    model: str
    truncate: bool
    normalize: bool
    dimensions: int
    prompt_name: str
    request_id: str


class GenerateOptions(TypedDict, total=False):
    """Fields of `formerd.v1.GenerateRequest`, those of its parts among them."""

    model: str
    # How the target begins: a text or its ids; of encoder-decoder models only.
    decoder_prompt: str | Sequence[int]
    # How the next token is chosen.
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int
    logit_bias: Mapping[int, float]
    # When a completion ends.
    max_new_tokens: int
    min_new_tokens: int
    stop: Sequence[str]
    stop_token_ids: Sequence[int]
    include_stop: bool
    ignore_eos: bool
    # How many, and how they are searched for.
    n: int
    beam_width: int
    length_penalty: float
    # What is reported beside the text.
    logprobs: bool
    top_logprobs: int
    prompt_logprobs: bool
    parse_control_tokens: bool
    request_id: str
