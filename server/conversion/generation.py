"""From the protocol's request to generate to the domain's."""

from __future__ import annotations

from dataclasses import dataclass

from formerd.v1 import generation_pb2 as pb

from export.manifest import Manifest
from server.chat import ChatTemplate
from server.conversion.beam import read_beam
from server.conversion.prompt import read_decoder_prompt, read_prompt
from server.conversion.ranges import Range
from server.conversion.sampling import read_sampling
from server.conversion.stopping import read_rules, read_stopping
from server.errors import InvalidInput
from server.limits import DecoderLimits, check_length
from server.request import GenerationRequest, Output
from server.tokenizer import Tokenizer

MOST_TOP_LOGPROBS = 20
_Ids = tuple[int, ...]


@dataclass(frozen=True)
class GenerateReader:
    """Reads requests to generate with one model.

    Attributes:
        reads_with: the tokenizer of prompts and sources.
        writes_with: the tokenizer of what is generated.
        template: of conversations; None where the model has none.
    """

    manifest: Manifest
    reads_with: Tokenizer
    writes_with: Tokenizer
    template: ChatTemplate | None
    limits: DecoderLimits

    def read(
        self,
        message: pb.GenerateRequest,
        *,
        drawn_seed: int,
        deadline: float,
        partition: str = "",
    ) -> GenerationRequest:
        """Checks, fills in and tokenises.

        `partition` tells whose computed prefixes it may share.

        Raises:
            InvalidInput: an input or parameter that cannot be served.
            OverLimit: a conversation that renders too large or too slowly.
        """
        manifest, slots = self.manifest, self.limits.slots
        n = message.n if message.HasField("n") else 1
        Range(1, slots).check("n", n)
        output = _read_output(message.output)
        sampling = read_sampling(
            message.sampling, manifest.generation, manifest.vocabulary_size, drawn_seed
        )
        beam = read_beam(message.beam, manifest.generation, sampling, n, slots)
        source, prompt = self._read_input(message)
        stopping = read_stopping(
            message.stopping,
            manifest,
            room=self.limits.capacity - len(prompt),
            may_be_empty=output.prompt_logprobs,
        )
        return GenerationRequest(
            prompt,
            sampling,
            stopping,
            output,
            n,
            deadline,
            beam,
            partition,
            source,
            read_rules(message.stopping, manifest.decoding),
        )

    def _read_input(self, message: pb.GenerateRequest) -> tuple[_Ids, _Ids]:
        """The source, which a decoder has none of, and what the completions go on from."""
        start_id = self.manifest.special_ids.decoder_start
        most = self.limits.max_input
        field, ids = read_prompt(message, most, self.reads_with, self.template)
        check_length(field, len(ids), 1, most)
        if start_id is None:
            if message.HasField("decoder_prompt"):
                raise InvalidInput(
                    "decoder_prompt is for encoder-decoder models only; leave it unset"
                )
            return (), tuple(ids)
        most = self.limits.max_decoder_prompt
        field, begun = read_decoder_prompt(message, most, self.writes_with)
        check_length(field, len(begun), 0, most)
        return tuple(ids), (start_id, *begun)


def _read_output(message: pb.Output) -> Output:
    Range(0, MOST_TOP_LOGPROBS).check("output.top_logprobs", message.top_logprobs)
    if message.top_logprobs and not (message.logprobs or message.prompt_logprobs):
        raise InvalidInput(
            f"output.top_logprobs is {message.top_logprobs}, but neither output.logprobs nor "
            "output.prompt_logprobs is set"
        )
    return Output(message.logprobs, message.top_logprobs, message.prompt_logprobs)
