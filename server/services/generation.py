"""formerd.v1.GenerationService."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from formerd.v1 import generation_pb2 as pb
from formerd.v1.generation_pb2_grpc import GenerationServiceServicer

from export.manifest import Task
from server.call import Call
from server.caller import partition_of
from server.calls import Calls
from server.context import Context, write
from server.conversion.answer_size import (
    check_answer_fits,
    check_events_fit,
    check_response_size,
)
from server.conversion.completion_events import AnswerWriter, SuccessEvent, write_timing
from server.conversion.generation import GenerateReader
from server.request import Chunk, Failed, GenerationEvent, GenerationRequest, Summary
from server.worker import Worker


class GenerationService(GenerationServiceServicer):
    """Generates, in one answer or as a stream."""

    def __init__(self, calls: Calls, worker: Worker, max_response_bytes: int) -> None:
        self._calls = calls
        self._worker = worker
        self._max_response_bytes = max_response_bytes

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        async with self._calls.rpc(
            "Generate", context, request.model, Task.GENERATE, request.request_id
        ) as call:
            wanted = await self._read(request, context, call)
            check_answer_fits(wanted, self._max_response_bytes)
            async with _generating(wanted, call) as events:
                response = _writer(wanted, call).response([e async for e in events], wanted.n)
            check_response_size(response, self._max_response_bytes)
            return response

    # A coroutine that writes, not a generator: it is told by CancelledError when the caller goes.
    async def GenerateStream(  # type: ignore[override]
        self, request: pb.GenerateRequest, context: Context
    ) -> None:
        async with self._calls.rpc(
            "GenerateStream", context, request.model, Task.GENERATE, request.request_id
        ) as call:
            wanted = await self._read(request, context, call)
            check_events_fit(wanted, self._max_response_bytes)
            writer = _writer(wanted, call)
            async with _generating(wanted, call) as events:
                async for event in events:
                    await write(context, writer.event(event))

    async def _read(
        self, request: pb.GenerateRequest, context: Context, call: Call
    ) -> GenerationRequest:
        model = call.model
        partition = partition_of(context.invocation_metadata() or ())
        generator = model.generate_with()
        reader = GenerateReader(
            model.manifest, model.tokenizer, generator.tokenizer, generator.chat, generator.limits
        )
        call.tell(request=request)
        wanted, call.facts["tokenize_seconds"] = await self._worker.convert(
            request,
            lambda: reader.read(
                request,
                drawn_seed=secrets.randbits(64),
                deadline=call.deadline,
                partition=partition,
            ),
            model.metrics.tokenize_duration,
            heavy=request.HasField("chat"),  # a template may do anything
        )
        return wanted


def _writer(wanted: GenerationRequest, call: Call) -> AnswerWriter:
    return AnswerWriter(
        call.model.name, wanted.sampling.seed, call.request_id, call.model.target_tokenizer
    )


@asynccontextmanager
async def _generating(
    wanted: GenerationRequest, call: Call
) -> AsyncIterator[AsyncIterator[SuccessEvent]]:
    """The events of a request, which the engine forgets when the block is left.

    The engine does not wait for the reader: `max_new_tokens` bounds what can pile up.
    """
    engine = call.model.generate_with().engine
    arrived: asyncio.Queue[GenerationEvent] = asyncio.Queue()
    ticket = engine.submit(wanted, arrived.put_nowait)
    try:
        yield _until_summary(arrived, call)
    finally:
        engine.cancel(ticket)


async def _until_summary(
    arrived: asyncio.Queue[GenerationEvent], call: Call
) -> AsyncIterator[SuccessEvent]:
    """Events in order, to the summary; raises what a request failed with."""
    while True:
        event = await arrived.get()
        match event:
            case Failed():
                raise event.error
            case Chunk():
                call.tell(**{f"text_{event.index}": event.text})
            case Summary():
                _note(event, call)
        yield event
        if isinstance(event, Summary):
            return


def _note(summary: Summary, call: Call) -> None:
    call.model.metrics.queue_duration[call.method].observe(summary.queue_seconds)
    call.note(
        write_timing(summary),
        prompt_tokens=summary.prompt_tokens,
        completion_tokens=summary.completion_tokens,
    )
