"""Requests and what comes of them, as plain data between the services and the engines.

The services turn protocol messages into these and back; the engines know nothing else. Everything
here has been validated, and every default has been filled in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from export.manifest import DecodingRules
from server.errors import ServerError

NO_RULES = DecodingRules()


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    LENGTH = "length"
    EOS = "eos"


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; the values that switch a rule off are the defaults.

    `temperature` 0 is greedy. `top_k` 0 is off. `seed` is always set: given, or drawn on arrival.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @property
    def greedy(self) -> bool:
        return self.temperature < 1e-4


@dataclass(frozen=True)
class Stopping:
    """When a completion ends. `eos_ids` is empty where the end tokens are to be ignored."""

    max_new_tokens: int
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    eos_ids: tuple[int, ...] = ()
    include_stop: bool = False


@dataclass(frozen=True)
class Output:
    """What is reported beside the text; `top_logprobs` counts alternatives per position."""

    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: bool = False


@dataclass(frozen=True)
class Beam:
    """A search for the most probable completions instead of sampling; `width` is at least 2.

    Completions are ranked by their log-probability / length ** `length_penalty`.
    """

    width: int
    length_penalty: float = 1.0


@dataclass(frozen=True)
class GenerationRequest:
    """One request to generate.

    Attributes:
        prompt: what the completions go on from, at least one id: a decoder's prompt; an
            encoder-decoder's start token and the beginning of the target that the caller gives.
        source: an encoder-decoder's source, at least one id; empty for a decoder.
        n: completions; of a search, the best so many of its `width` beams.
        deadline: on the monotonic clock, in seconds; None without one.
        beam: None samples, or takes the most probable token each time.
        rules: what the checkpoint demands of every completion.
        partition: whose prompts and sources this one may share what is computed of with.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    stopping: Stopping
    output: Output = Output()
    n: int = 1
    deadline: float | None = None
    beam: Beam | None = None
    partition: str = ""
    source: tuple[int, ...] = ()
    rules: DecodingRules = NO_RULES

    @property
    def input_tokens(self) -> int:
        """Tokens that the caller gives: a start token is not among them."""
        return len(self.source) + len(self.prompt) - 1 if self.source else len(self.prompt)

    @property
    def rows(self) -> int:
        """Rows of the cache that it needs at once."""
        if self.stopping.max_new_tokens == 0:
            return 1
        return self.n if self.beam is None else self.beam.width


@dataclass(frozen=True)
class TokenLogprob:
    """Natural logarithm of a token's probability under the raw distribution."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


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
    reason: FinishReason
    stop_sequence: str = ""


@dataclass(frozen=True)
class Summary:
    """The request is complete; the last event of a request that succeeded. Times in seconds.

    Attributes:
        prompt_tokens: of the prompt, and of the source if there is one; no start token.
        cached_tokens: of those, what was not computed again.
        prompt_logprobs: where they are asked for, of the prompt's tokens from the second on.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    time_to_first_token_seconds: float
    prompt_logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Failed:
    """The request failed; the last event of a request that did."""

    error: ServerError


GenerationEvent = Chunk | Finished | Summary | Failed


@dataclass(frozen=True)
class EmbedItem:
    """One text to embed, as ids; within the model's limit, at least one."""

    ids: tuple[int, ...]


@dataclass(frozen=True)
class EmbedResult:
    """The vector of one item (float32, as the graph gives it), or why it has none."""

    vector: memoryview | None
    error: ServerError | None = None


@dataclass(frozen=True)
class EmbedOutcome:
    """All results of one call, in the order of its items. Times in seconds."""

    results: tuple[EmbedResult, ...] = ()
    queue_seconds: float = 0.0
    encode_seconds: float = 0.0


# Called on the event loop's thread, one call an event, in order.
DeliverGeneration = Callable[[GenerationEvent], None]
DeliverEmbedding = Callable[[EmbedOutcome | Failed], None]


@dataclass(eq=False)
class Ticket:
    """The handle of a submitted request; its identity is the key, whatever the client calls it."""

    cancelled: bool = field(default=False)
