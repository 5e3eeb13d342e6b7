"""What calls return, as plain data. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from client.errors import CallFailed


@dataclass(frozen=True)
class Embedding:
    """The vector of one input, or why it has none; `token_count` includes special tokens."""

    vector: tuple[float, ...] | None
    error: CallFailed | None
    token_count: int
    truncated: bool


@dataclass(frozen=True)
class EmbedTiming:
    """Where the time of an embedding call went, on the server."""

    tokenize: float
    queue: float
    encode: float


@dataclass(frozen=True)
class Embeddings:
    """One item for each input, in order."""

    model: str
    items: tuple[Embedding, ...]
    prompt_tokens: int
    timing: EmbedTiming
    request_id: str

    @property
    def vectors(self) -> list[tuple[float, ...]]:
        """All vectors.

        Raises:
            CallFailed: the first item that failed.
        """
        vectors = []
        for item in self.items:
            if item.error is not None:
                raise item.error
            vectors.append(item.vector or ())
        return vectors


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"  # a stop string or a stop token id
    LENGTH = "length"  # max_new_tokens, or the end of the model's room
    EOS = "eos"  # one of the model's own end tokens


@dataclass(frozen=True)
class TokenLogprob:
    """Natural logarithm of a token's probability, before any warping; `top` is best first."""

    token_id: int
    token: str
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Completion:
    """One generated text; `token_ids` includes an end token."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_sequence: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Usage:
    """What a call cost, in tokens; `cached_tokens` of the prompt were not computed again."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class GenerateTiming:
    """Where the time of a generating call went, on the server."""

    queue: float
    prefill: float
    decode: float
    time_to_first_token: float


@dataclass(frozen=True)
class Summary:
    """What is known once a call is complete; the last event of a stream."""

    model: str
    seed: int
    usage: Usage
    timing: GenerateTiming
    request_id: str
    prompt_logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Generation:
    """The answer of a unary call."""

    completions: tuple[Completion, ...]
    summary: Summary

    @property
    def text(self) -> str:
        """The text of the first completion."""
        return self.completions[0].text


@dataclass(frozen=True)
class Chunk:
    """New tokens of completion `index`; `text` is what they add, and may be empty."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Finished:
    """Completion `index` is complete."""

    index: int
    finish_reason: FinishReason
    stop_sequence: str = ""


Event = Chunk | Finished | Summary


@dataclass(frozen=True)
class Model:
    """A model that is loaded; the fields are those of `formerd.v1.Model`."""

    name: str
    kind: str  # encoder, decoder, encoder_decoder
    tasks: tuple[str, ...]  # embed, generate
    precision: str
    device: str
    provider: str
    verified_on: tuple[str, ...]
    dimensions: int
    max_input_tokens: int
    capacity: int
    max_inputs: int
    slots: int
    pooling: str
    prompt_names: tuple[str, ...]
    vocabulary_size: int
    digest: str


@dataclass(frozen=True)
class Token:
    """One token of a text, and where it stands in it, in code points; `end` is exclusive."""

    id: int
    text: str
    start: int
    end: int
