"""formerd.v1.EmbeddingService."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

from formerd.v1 import embedding_pb2 as pb
from formerd.v1.embedding_pb2_grpc import EmbeddingServiceServicer

from export.manifest import Task
from server.call import Call
from server.calls import Calls
from server.context import Context, end, write
from server.conversion.embedding import read_embed_request, write_embeddings
from server.conversion.status import rpc_status
from server.encoder_engine import EncoderEngine
from server.errors import ServerError
from server.request import EmbedItem, EmbedOutcome, Failed
from server.worker import Worker

MOST_UNANSWERED = 8  # requests of one stream that are read ahead
_FEW_VECTORS = 32  # written in about a millisecond


class EmbeddingService(EmbeddingServiceServicer):
    """Embeds lists of inputs, one call at a time or over a stream."""

    def __init__(self, calls: Calls, worker: Worker, max_response_bytes: int) -> None:
        self._calls = calls
        self._worker = worker
        self._max_response_bytes = max_response_bytes

    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:
        async with self._calls.rpc(
            "Embed", context, request.model, Task.EMBED, request.request_id
        ) as call:
            return await self._embed(request, call)

    # A coroutine that writes, not a generator: it is told by CancelledError when the caller goes.
    async def EmbedStream(  # type: ignore[override]
        self, requests: AsyncIterator[pb.EmbedRequest], context: Context
    ) -> None:
        answers: asyncio.Queue[asyncio.Task[pb.EmbedStreamResponse] | None] = asyncio.Queue()
        unanswered = asyncio.Semaphore(MOST_UNANSWERED)

        async def read_ahead(group: asyncio.TaskGroup) -> None:
            await unanswered.acquire()
            async for request in requests:
                answers.put_nowait(group.create_task(self._answer(request, context)))
                await unanswered.acquire()
            answers.put_nowait(None)

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(read_ahead(group))
                while (answer := await answers.get()) is not None:
                    await write(context, await answer)
                    unanswered.release()
        except* ServerError as failed:
            await end(context, cast("ServerError", failed.exceptions[0]))

    async def _answer(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedStreamResponse:
        """The response to one request of a stream, which goes on whatever it is."""
        try:
            async with self._calls.request(
                "EmbedStream", context, request.model, Task.EMBED, request.request_id
            ) as call:
                response = await self._embed(request, call)
                return pb.EmbedStreamResponse(response=response, request_id=call.request_id)
        except ServerError as error:
            return pb.EmbedStreamResponse(error=rpc_status(error), request_id=request.request_id)

    async def _embed(self, request: pb.EmbedRequest, call: Call) -> pb.EmbedResponse:
        model = call.model
        engine = model.embed_with()
        call.tell(request=request)
        work, call.facts["tokenize_seconds"] = await self._worker.convert(
            request,
            lambda: read_embed_request(
                request,
                model.manifest,
                model.max_input,
                model.tokenizer,
                self._max_response_bytes,
            ),
            model.metrics.tokenize_duration,
        )
        outcome = await _encode(engine, work.items, call.deadline)
        model.metrics.queue_duration[call.method].observe(outcome.queue_seconds)
        timing = pb.EmbedTiming(
            tokenize_seconds=call.facts["tokenize_seconds"],
            queue_seconds=outcome.queue_seconds,
            encode_seconds=outcome.encode_seconds,
        )
        call.note(timing, inputs=len(work.items), tokens=work.tokens)

        def write_response() -> pb.EmbedResponse:
            return pb.EmbedResponse(
                model=model.name,
                embeddings=write_embeddings(work, outcome),
                usage=pb.EmbedUsage(prompt_tokens=work.tokens),
                timing=timing,
                request_id=call.request_id,
            )

        few = len(work.items) <= _FEW_VECTORS
        return write_response() if few else await self._worker.run(write_response)


async def _encode(
    engine: EncoderEngine, items: tuple[EmbedItem, ...], deadline: float
) -> EmbedOutcome:
    """Has the engine compute the items.

    Raises:
        ServerError: the call as a whole failed.
    """
    done: asyncio.Future[EmbedOutcome | Failed] = asyncio.get_running_loop().create_future()

    def deliver(outcome: EmbedOutcome | Failed) -> None:
        if not done.done():
            done.set_result(outcome)

    ticket = engine.submit(items, deliver, deadline)
    try:
        outcome = await done
    finally:
        engine.cancel(ticket)
    if isinstance(outcome, Failed):
        raise outcome.error
    return outcome
