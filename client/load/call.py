"""Makes the call of an attempt, and says how it ended."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import grpc

from client.aio import AsyncClient
from client.errors import CallFailed
from client.load.attempt import Attempt, End, Outcome
from client.load.hearing import Hearing
from client.load.profile import Kind
from client.load.question import EmbedQuestion, GenerateQuestion
from client.options import GenerateOptions

PATIENCE_SECONDS = 120.0  # of a caller without a deadline: what takes longer is lost


async def carry_out(attempt: Attempt, client: AsyncClient, due: float | None = None) -> Outcome:
    """Makes the call, whose time counts from `due` on the clock of `time.perf_counter`, or now."""
    hearing, end, failure = Hearing(), End.ANSWERED, None
    due = time.perf_counter() if due is None else due
    try:
        async with asyncio.timeout(attempt.leaves_after):
            await _call(attempt, client, hearing)
    except TimeoutError:
        end = End.LEFT
    except CallFailed as error:
        end, failure = _end_of(error, attempt), error
    first = hearing.first_token_at if attempt.kind is Kind.STREAM else None
    return Outcome(
        attempt,
        end,
        seconds=time.perf_counter() - due,
        first_token_seconds=None if first is None else first - due,
        answer=hearing.answer,
        request_id=hearing.request_id,
        disorder=hearing.disorder,
        failure=failure,
    )


async def _call(attempt: Attempt, client: AsyncClient, hearing: Hearing) -> None:
    """Raises `CallFailed`; the caller who goes cancels it."""
    timeout = PATIENCE_SECONDS if attempt.deadline is None else attempt.deadline
    match attempt.question:
        case EmbedQuestion(model, texts):
            asked = client.embed(*texts, model=model, request_id=attempt.id, timeout=timeout)
            hearing.embeddings(await asked)
        case GenerateQuestion(prompt=prompt) as question:
            options = _options(question, attempt.id)
            if attempt.kind is Kind.GENERATE:
                hearing.generation(await client.generate(prompt, timeout=timeout, **options))
                return
            async with aclosing(client.stream(prompt, timeout=timeout, **options)) as events:
                async for event in events:
                    hearing.event(event)


def _options(question: GenerateQuestion, request_id: str) -> GenerateOptions:
    return GenerateOptions(
        model=question.model,
        max_new_tokens=question.max_new_tokens,
        temperature=question.temperature,
        seed=question.seed,
        request_id=request_id,
    )


def _end_of(failure: CallFailed, attempt: Attempt) -> End:
    match failure.code:
        case grpc.StatusCode.RESOURCE_EXHAUSTED if failure.retry_after is not None:
            return End.REFUSED
        case grpc.StatusCode.DEADLINE_EXCEEDED if attempt.deadline is not None:
            return End.EXPIRED
        case grpc.StatusCode.UNAVAILABLE:
            return End.UNAVAILABLE
    return End.FAILED
