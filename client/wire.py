"""Between keyword arguments, protocol messages and results: pure functions, no channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from formerd.v1 import embedding_pb2, generation_pb2, models_pb2, tokens_pb2

from client.errors import item_failed
from client.options import EmbedOptions, GenerateOptions, Message
from client.results import (
    Chunk,
    Completion,
    Embedding,
    Embeddings,
    EmbedTiming,
    Event,
    Finished,
    FinishReason,
    GenerateTiming,
    Generation,
    Model,
    Summary,
    Token,
    TokenLogprob,
    Usage,
)

# A text, a chat, or the ids of a text that the caller has tokenised already.
Prompt = str | Sequence[Message] | Sequence[int]

_SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "logit_bias",
)
_STOPPING = (
    "max_new_tokens",
    "min_new_tokens",
    "stop",
    "stop_token_ids",
    "include_stop",
    "ignore_eos",
)
_OUTPUT = ("logprobs", "top_logprobs", "prompt_logprobs")

_FINISH_REASONS = {
    generation_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    generation_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
    generation_pb2.FINISH_REASON_EOS: FinishReason.EOS,
}


def embed_request(
    inputs: Iterable[str | Sequence[int]], options: EmbedOptions
) -> embedding_pb2.EmbedRequest:
    """A request for one vector an input; an input is a text or its ids.

    Raises:
        ValueError: an option that does not exist, or a value that its field cannot hold.
    """
    request = embedding_pb2.EmbedRequest(**options)
    for item in inputs:
        if isinstance(item, str):
            request.inputs.add(text=item)
        else:
            request.inputs.add(tokens=tokens_pb2.TokenIds(ids=item))
    return request


def generate_request(prompt: Prompt, options: GenerateOptions) -> generation_pb2.GenerateRequest:
    """A request to generate.

    Raises:
        ValueError: an option that does not exist, or a value that its field cannot hold.
    """
    rest: dict[str, Any] = dict(options)
    sampling, stopping, output = (_take(rest, names) for names in (_SAMPLING, _STOPPING, _OUTPUT))
    begun = rest.pop("decoder_prompt", None)
    beam = _take(rest, ("beam_width", "length_penalty"))
    if "beam_width" in beam:
        beam["width"] = beam.pop("beam_width")
    return generation_pb2.GenerateRequest(
        **_prompt_field(prompt),
        decoder_prompt=None if begun is None else _decoder_prompt(begun),
        sampling=generation_pb2.Sampling(**sampling) if sampling else None,
        stopping=generation_pb2.Stopping(**stopping) if stopping else None,
        output=generation_pb2.Output(**output) if output else None,
        beam=generation_pb2.Beam(**beam) if beam else None,
        **rest,
    )


def to_embeddings(response: embedding_pb2.EmbedResponse) -> Embeddings:
    """The answer of `Embed`."""
    return Embeddings(
        model=response.model,
        items=tuple(_embedding(item) for item in response.embeddings),
        prompt_tokens=response.usage.prompt_tokens,
        timing=EmbedTiming(
            tokenize=response.timing.tokenize_seconds,
            queue=response.timing.queue_seconds,
            encode=response.timing.encode_seconds,
        ),
        request_id=response.request_id,
    )


def to_generation(response: generation_pb2.GenerateResponse) -> Generation:
    """The answer of `Generate`."""
    return Generation(
        completions=tuple(_completion(item) for item in response.completions),
        summary=_summary(response),
    )


def to_event(message: generation_pb2.GenerateEvent) -> Event | None:
    """One event of `GenerateStream`; None for a kind that this client does not know."""
    match message.WhichOneof("event"):
        case "chunk":
            chunk = message.chunk
            ids = tuple(chunk.token_ids)
            return Chunk(chunk.index, chunk.text, ids, _logprobs(chunk.logprobs))
        case "finished":
            finished = message.finished
            reason = _FINISH_REASONS[finished.finish_reason]
            return Finished(finished.index, reason, finished.stop_sequence)
        case "summary":
            return _summary(message.summary)
        case _:
            return None


def to_model(model: models_pb2.Model) -> Model:
    """One loaded model."""
    return Model(
        name=model.name,
        kind=_enum_name(models_pb2.ModelKind, model.kind, "MODEL_KIND_"),
        tasks=tuple(_enum_name(models_pb2.Task, task, "TASK_") for task in model.task),
        precision=model.precision,
        device=model.device,
        provider=model.provider,
        verified_on=tuple(model.verified_on),
        dimensions=model.dimensions,
        max_input_tokens=model.limits.max_input_tokens,
        capacity=model.limits.capacity,
        max_inputs=model.limits.max_inputs,
        slots=model.limits.slots,
        pooling=model.pooling,
        prompt_names=tuple(model.prompt_names),
        vocabulary_size=model.vocabulary_size,
        digest=model.digest,
    )


def to_tokens(response: models_pb2.TokenizeResponse) -> tuple[Token, ...]:
    """The tokens of a text."""
    return tuple(Token(item.id, item.text, item.start, item.end) for item in response.tokens)


def _prompt_field(prompt: Prompt) -> dict[str, Any]:
    if isinstance(prompt, str):
        return {"prompt": prompt}
    if prompt and isinstance(prompt[0], Message):
        turns = cast("Sequence[Message]", prompt)
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        return {"chat": generation_pb2.Chat(messages=messages)}
    return {"tokens": tokens_pb2.TokenIds(ids=cast("Sequence[int]", prompt))}


def _decoder_prompt(begun: str | Sequence[int]) -> generation_pb2.DecoderPrompt:
    if isinstance(begun, str):
        return generation_pb2.DecoderPrompt(text=begun)
    return generation_pb2.DecoderPrompt(tokens=tokens_pb2.TokenIds(ids=begun))


def _take(options: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: options.pop(name) for name in names if name in options}


def _embedding(item: embedding_pb2.Embedding) -> Embedding:
    failed = item.WhichOneof("result") == "error"
    return Embedding(
        vector=None if failed else tuple(item.vector.values),
        error=item_failed(item.error) if failed else None,
        token_count=item.token_count,
        truncated=item.truncated,
    )


def _completion(item: generation_pb2.Completion) -> Completion:
    return Completion(
        index=item.index,
        text=item.text,
        token_ids=tuple(item.token_ids),
        finish_reason=_FINISH_REASONS[item.finish_reason],
        stop_sequence=item.stop_sequence,
        logprobs=_logprobs(item.logprobs),
    )


def _summary(
    message: generation_pb2.GenerateResponse | generation_pb2.GenerateSummary,
) -> Summary:
    usage, timing = message.usage, message.timing
    return Summary(
        model=message.model,
        seed=message.seed,
        usage=Usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens),
        timing=GenerateTiming(
            queue=timing.queue_seconds,
            prefill=timing.prefill_seconds,
            decode=timing.decode_seconds,
            time_to_first_token=timing.time_to_first_token_seconds,
        ),
        request_id=message.request_id,
        prompt_logprobs=_logprobs(message.prompt_logprobs),
    )


def _logprobs(items: Iterable[generation_pb2.Logprob]) -> tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(
            item.token_id,
            item.token,
            item.logprob,
            tuple(TokenLogprob(top.token_id, top.token, top.logprob) for top in item.top),
        )
        for item in items
    )


def _enum_name(enum: Any, value: int, prefix: str) -> str:
    """`MODEL_KIND_ENCODER` -> `encoder`; a value of a newer server is its number."""
    if value not in enum.values():
        return str(value)
    return str(enum.Name(value)).removeprefix(prefix).lower()
