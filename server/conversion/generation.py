"""From the protocol's request to generate to the domain's."""

from __future__ import annotations

from formerd.v1 import generation_pb2 as pb

from export.manifest import Manifest
from server.chat import ChatTemplate
from server.conversion.prompt import read_prompt
from server.conversion.ranges import Range
from server.conversion.sampling import read_sampling
from server.conversion.stopping import read_stopping
from server.errors import InputTooLong, InvalidInput
from server.limits import DecoderLimits
from server.request import GenerationRequest, Output
from server.tokenizer import Tokenizer

MOST_TOP_LOGPROBS = 20


def read_generate_request(
    message: pb.GenerateRequest,
    manifest: Manifest,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    limits: DecoderLimits,
    *,
    drawn_seed: int,
    deadline: float,
) -> GenerationRequest:
    """Checks, fills in and tokenises.

    Raises:
        InvalidInput: an input or parameter that cannot be served.
    """
    _refuse_what_is_not_served(message)
    n = message.n if message.HasField("n") else 1
    Range(1, limits.slots).check("n", n)
    output = _read_output(message.output)
    sampling = read_sampling(
        message.sampling, manifest.generation, manifest.vocabulary_size, drawn_seed
    )
    field, prompt = read_prompt(message, manifest, tokenizer, template)
    room = limits.capacity - len(prompt)
    if room < 1:
        raise InputTooLong(
            f"{field} has {len(prompt)} tokens; this model takes at most {limits.capacity - 1}"
        )
    stopping = read_stopping(
        message.stopping, manifest, room=room, may_be_empty=output.prompt_logprobs
    )
    return GenerationRequest(tuple(prompt), sampling, stopping, output, n, deadline)


def _refuse_what_is_not_served(message: pb.GenerateRequest) -> None:
    """A wish that this server cannot grant is an error, never left out."""
    if message.HasField("decoder_prompt"):
        raise InvalidInput("decoder_prompt is for encoder-decoder models only; leave it unset")
    if message.beam.HasField("width") and message.beam.width != 1:
        raise InvalidInput(f"beam.width is {message.beam.width}; this server searches with 1 only")
    if message.beam.HasField("length_penalty"):
        raise InvalidInput("beam.length_penalty is set, but there is no beam; leave it unset")
    if message.output.prompt_logprobs:
        raise InvalidInput("output.prompt_logprobs is not served; leave it unset")


def _read_output(message: pb.Output) -> Output:
    Range(0, MOST_TOP_LOGPROBS).check("output.top_logprobs", message.top_logprobs)
    if message.top_logprobs and not message.logprobs:
        raise InvalidInput(
            f"output.top_logprobs is {message.top_logprobs}, but output.logprobs is not set"
        )
    return Output(message.logprobs, message.top_logprobs)
