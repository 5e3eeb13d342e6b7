"""From the events of a generation to the protocol's answers, streamed or whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from formerd.v1 import generation_pb2 as pb

from server.request import Chunk, Finished, FinishReason, Summary, TokenLogprob
from server.tokenizer import Tokenizer

SuccessEvent = Chunk | Finished | Summary

_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
    FinishReason.EOS: pb.FINISH_REASON_EOS,
}


@dataclass(frozen=True)
class AnswerWriter:
    """Writes the answers to one request."""

    model: str
    seed: int
    request_id: str
    tokenizer: Tokenizer

    def event(self, event: SuccessEvent) -> pb.GenerateEvent:
        """One message of a stream."""
        match event:
            case Chunk():
                return pb.GenerateEvent(
                    chunk=pb.GenerateChunk(
                        index=event.index,
                        text=event.text,
                        token_ids=event.token_ids,
                        logprobs=self._logprobs(event.logprobs),
                    )
                )
            case Finished():
                return pb.GenerateEvent(
                    finished=pb.GenerateFinished(
                        index=event.index,
                        finish_reason=_REASONS[event.reason],
                        stop_sequence=event.stop_sequence,
                    )
                )
            case Summary():
                return pb.GenerateEvent(
                    summary=pb.GenerateSummary(
                        model=self.model,
                        seed=self.seed,
                        usage=_usage(event),
                        timing=write_timing(event),
                        prompt_logprobs=self._logprobs(event.prompt_logprobs),
                        request_id=self.request_id,
                    )
                )

    def response(self, events: Iterable[SuccessEvent], n: int) -> pb.GenerateResponse:
        """The whole answer, from all events of the request in order."""
        response = pb.GenerateResponse(model=self.model, seed=self.seed, request_id=self.request_id)
        response.completions.extend(pb.Completion(index=index) for index in range(n))
        texts: list[list[str]] = [[] for _ in range(n)]
        for event in events:
            match event:
                case Chunk():
                    completion = response.completions[event.index]
                    completion.token_ids.extend(event.token_ids)
                    completion.logprobs.extend(self._logprobs(event.logprobs))
                    texts[event.index].append(event.text)
                case Finished():
                    completion = response.completions[event.index]
                    completion.finish_reason = _REASONS[event.reason]
                    completion.stop_sequence = event.stop_sequence
                case Summary():
                    response.usage.CopyFrom(_usage(event))
                    response.timing.CopyFrom(write_timing(event))
                    response.prompt_logprobs.extend(self._logprobs(event.prompt_logprobs))
        for completion, parts in zip(response.completions, texts, strict=True):
            completion.text = "".join(parts)
        return response

    def _logprobs(self, values: Iterable[TokenLogprob]) -> list[pb.Logprob]:
        return [
            pb.Logprob(
                token_id=value.token_id,
                token=self.tokenizer.token(value.token_id),
                logprob=value.logprob,
                top=[
                    pb.TokenLogprob(
                        token_id=token_id, token=self.tokenizer.token(token_id), logprob=logprob
                    )
                    for token_id, logprob in value.top
                ],
            )
            for value in values
        ]


def _usage(summary: Summary) -> pb.GenerateUsage:
    return pb.GenerateUsage(
        prompt_tokens=summary.prompt_tokens,
        completion_tokens=summary.completion_tokens,
        cached_tokens=summary.cached_tokens,
    )


def write_timing(summary: Summary) -> pb.GenerateTiming:
    """The times of an answer."""
    return pb.GenerateTiming(
        queue_seconds=summary.queue_seconds,
        prefill_seconds=summary.prefill_seconds,
        decode_seconds=summary.decode_seconds,
        time_to_first_token_seconds=summary.time_to_first_token_seconds,
    )
