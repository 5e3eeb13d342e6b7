"""Between the protocol's requests to embed and the domain's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from formerd.v1 import embedding_pb2 as pb

from export.manifest import Manifest, PoolingSpec
from server.conversion.ranges import check_ids
from server.conversion.status import rpc_status
from server.conversion.text_size import check_text_size, most_text_bytes
from server.conversion.vector import VectorForm
from server.errors import InputTooLong, InvalidInput, OverLimit
from server.request import EmbedItem, EmbedOutcome, EmbedResult
from server.tokenizer import Tokenizer

_NAME_SHOWN = 80  # characters of a name that an error repeats
_ENVELOPE_BYTES = 2048  # of a response: everything but its embeddings
_EMBEDDING_BYTES = 20  # of an embedding: everything but its values
_ERROR_BYTES = 256  # of an embedding that is an error


@dataclass(frozen=True)
class EmbedWork:
    """What a request to embed comes to: its items, which of them were cut, and the form wanted."""

    items: tuple[EmbedItem, ...]
    truncated: tuple[bool, ...]
    form: VectorForm

    @property
    def tokens(self) -> int:
        return sum(len(item.ids) for item in self.items)


def max_inputs(dimensions: int, max_response_bytes: int) -> int:
    """Inputs whose vectors of so many dimensions surely fit one response."""
    each = max(4 * dimensions + _EMBEDDING_BYTES, _ERROR_BYTES)
    return max(1, (max_response_bytes - _ENVELOPE_BYTES) // each)


def read_embed_request(
    message: pb.EmbedRequest,
    manifest: Manifest,
    limit: int,
    tokenizer: Tokenizer,
    max_response_bytes: int,
) -> EmbedWork:
    """Checks and tokenises; `manifest` is of a model that embeds `limit` tokens of a text.

    Raises:
        InvalidInput: an input or parameter that cannot be served.
        OverLimit: more inputs than one response can answer.
    """
    form = VectorForm.read(message, pooling_of(manifest))
    _check_count(len(message.inputs), max_inputs(form.dimensions, max_response_bytes))
    prompt = _prompt(message.prompt_name, manifest)
    if not message.truncate:
        _check_sizes(message, limit, tokenizer)
    read = [
        _read_input(f"inputs[{index}]", item, prompt, limit, tokenizer)
        for index, item in enumerate(message.inputs)
    ]
    if not message.truncate:
        _check_lengths([len(ids) for ids in read], limit)
    return EmbedWork(
        items=tuple(EmbedItem(tuple(tokenizer.truncate(ids, limit))) for ids in read),
        truncated=tuple(len(ids) > limit for ids in read),
        form=form,
    )


def write_embeddings(work: EmbedWork, outcome: EmbedOutcome) -> list[pb.Embedding]:
    """The embeddings of a response, in the order of the inputs."""
    return [
        pb.Embedding(
            **_write_result(result, work.form), token_count=len(item.ids), truncated=truncated
        )
        for item, truncated, result in zip(work.items, work.truncated, outcome.results, strict=True)
    ]


def pooling_of(manifest: Manifest) -> PoolingSpec:
    """How a model that embeds pools."""
    assert manifest.pooling is not None, f"{manifest.name} does not embed"
    return manifest.pooling


def _check_count(count: int, most: int) -> None:
    if count == 0:
        raise InvalidInput("inputs is empty; give at least one")
    if count > most:
        raise OverLimit(
            f"inputs has {count} entries; at most {most} vectors fit the response limit "
            "(--max-response-bytes): send them in several requests"
        )


def _check_sizes(message: pb.EmbedRequest, limit: int, tokenizer: Tokenizer) -> None:
    for index, item in enumerate(message.inputs):
        check_text_size(f"inputs[{index}].text", item.text, limit, tokenizer)


def _check_lengths(lengths: list[int], limit: int) -> None:
    for index, length in enumerate(lengths):
        if length > limit:
            raise InputTooLong(
                f"inputs[{index}] has {length} tokens; this model takes at most {limit}: shorten "
                "it or set truncate"
            )


def _prompt(name: str, manifest: Manifest) -> str:
    """What is put before every text."""
    name = name or manifest.default_prompt or ""
    if name and name not in manifest.prompts:
        known = ", ".join(manifest.prompts) or "none"
        raise InvalidInput(f"prompt_name is {name[:_NAME_SHOWN]!r}; this model has {known}")
    return manifest.prompts.get(name, "")


def _read_input(
    field: str, message: pb.EmbedInput, prompt: str, limit: int, tokenizer: Tokenizer
) -> list[int]:
    match message.WhichOneof("input"):
        case "text":
            field = f"{field}.text"
            ids = _encode(field, message.text, prompt, limit, tokenizer)
        case "tokens":
            field, ids = f"{field}.tokens", list(message.tokens.ids)
            check_ids(f"{field}.ids", ids, tokenizer.vocabulary_size)
        case _:
            raise InvalidInput(f"{field} has neither text nor tokens")
    if not ids:
        raise InvalidInput(f"{field} has no tokens; give at least one")
    return ids


def _encode(field: str, text: str, prompt: str, limit: int, tokenizer: Tokenizer) -> list[int]:
    """Ids of a text; of one that is to be truncated, more than `limit` are enough.

    Tokenising a text takes several hundred times its memory, so of a very long one no more is
    tokenised than could be needed.
    """
    most = most_text_bytes(limit, tokenizer)
    if len(text) <= most:
        return tokenizer.encode(prompt + text)
    ids = tokenizer.encode_beginning(prompt + text, len(prompt) + most)
    if len(ids) <= limit:
        raise InputTooLong(
            f"{field} has {len(text)} characters; its first {most} do not tell its first {limit} "
            "tokens, as where they are one word: shorten it"
        )
    return ids


def _write_result(result: EmbedResult, form: VectorForm) -> dict[str, Any]:
    if result.error is not None:
        return {"error": rpc_status(result.error)}
    assert result.vector is not None, "a result is a vector or an error"
    return {"vector": pb.Vector(values=form.apply(result.vector))}
