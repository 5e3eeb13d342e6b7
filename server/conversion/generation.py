"""From the protocol's request to generate to the domain's."""

from __future__ import annotations

from formerd.v1 import generation_pb2 as pb

from export.manifest import Manifest
from server.chat import ChatTemplate
from server.conversion.beam import read_beam
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
    partition: str = "",
) -> GenerationRequest:
    """Checks, fills in and tokenises.

    `partition` tells whose computed prefixes it may share.

    Raises:
        InvalidInput: an input or parameter that cannot be served.
    """
    if message.HasField("decoder_prompt"):
        raise InvalidInput("decoder_prompt is for encoder-decoder models only; leave it unset")
    n = message.n if message.HasField("n") else 1
    Range(1, limits.slots).check("n", n)
    output = _read_output(message.output)
    sampling = read_sampling(
        message.sampling, manifest.generation, manifest.vocabulary_size, drawn_seed
    )
    beam = read_beam(message.beam, sampling, n, limits.slots)
    field, prompt = read_prompt(message, manifest, tokenizer, template)
    room = limits.capacity - len(prompt)
    if room < 1:
        raise InputTooLong(
            f"{field} has {len(prompt)} tokens; this model takes at most {limits.capacity - 1}"
        )
    stopping = read_stopping(
        message.stopping, manifest, room=room, may_be_empty=output.prompt_logprobs
    )
    return GenerationRequest(
        tuple(prompt), sampling, stopping, output, n, deadline, beam, partition
    )


def _read_output(message: pb.Output) -> Output:
    Range(0, MOST_TOP_LOGPROBS).check("output.top_logprobs", message.top_logprobs)
    if message.top_logprobs and not (message.logprobs or message.prompt_logprobs):
        raise InvalidInput(
            f"output.top_logprobs is {message.top_logprobs}, but neither output.logprobs nor "
            "output.prompt_logprobs is set"
        )
    return Output(message.logprobs, message.top_logprobs, message.prompt_logprobs)
