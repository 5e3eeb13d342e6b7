"""Whole answers, put together from streams, so that they can be compared."""

from __future__ import annotations

from typing import Any

from formerd.v1 import generation_pb2 as pb


async def gather_stream(stream: Any) -> pb.GenerateResponse:
    """A whole answer put together from the events of a stream, as `without_times` leaves it."""
    response = pb.GenerateResponse()
    completions: dict[int, pb.Completion] = {}
    async for event in stream:
        assert not response.model, "nothing comes after the summary"
        match event.WhichOneof("event"):
            case "chunk":
                chunk = event.chunk
                completion = completions.setdefault(chunk.index, pb.Completion(index=chunk.index))
                assert completion.finish_reason == pb.FINISH_REASON_UNSPECIFIED
                completion.text += chunk.text
                completion.token_ids.extend(chunk.token_ids)
                completion.logprobs.extend(chunk.logprobs)
            case "finished":
                completion = completions[event.finished.index]
                completion.finish_reason = event.finished.finish_reason
                completion.stop_sequence = event.finished.stop_sequence
            case "summary":
                response.model, response.seed = event.summary.model, event.summary.seed
                response.usage.CopyFrom(event.summary.usage)
                response.prompt_logprobs.extend(event.summary.prompt_logprobs)
    response.completions.extend(completions[index] for index in sorted(completions))
    return without_times(response)


def without_times(response: pb.GenerateResponse) -> pb.GenerateResponse:
    """The same answer without what differs from call to call: times, id, and what was cached."""
    response.usage.ClearField("cached_tokens")
    response.ClearField("timing")
    response.ClearField("request_id")
    return response
