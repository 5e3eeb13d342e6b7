"""The calls of a server: each gets an id and a deadline, is counted, and ends in one way."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from structlog.typing import FilteringBoundLogger

from export.manifest import Task
from server.call import Call
from server.context import Context, end
from server.errors import (
    Cancelled,
    DeadlinePassed,
    Draining,
    Interrupted,
    InvalidInput,
    ServerError,
    StepFailed,
    status_code,
)
from server.metrics import METHODS, CallMetrics, Metrics
from server.models import Models

if TYPE_CHECKING:
    from server.tracing import Tracing  # which needs what only an extra installs

_MOST_ID_CHARACTERS = 256
_MOST_METHOD_CHARACTERS = 80  # of a method that there need not be
_DEADLINE_SECONDS = 0.05  # a caller whose deadline passes may say so before our clock does
_SLACK_SECONDS = 1.0  # engines keep the deadline; a call ends by itself only if they do not


class Calls:
    """All calls of a server: those that run now, and whether more may come.

    Args:
        max_request_seconds: the longest life of any of them.
        log_text: whether what callers say and are told is logged.
        tracing: makes spans of them; None makes none.
    """

    def __init__(
        self,
        models: Models,
        metrics: Metrics,
        log: FilteringBoundLogger,
        *,
        max_request_seconds: float,
        log_text: bool = False,
        tracing: Tracing | None = None,
    ) -> None:
        self._models = models
        self._metrics = metrics
        self._log = log
        self._max_request_seconds = max_request_seconds
        self._log_text = log_text
        self._tracing = tracing
        self._running: set[asyncio.Task[Any]] = set()
        self._interrupted = False
        self._quiet = asyncio.Event()
        self._quiet.set()
        self.accepting = False

    async def drained(self) -> None:
        """Waits until no call runs."""
        await self._quiet.wait()

    def interrupt(self) -> None:
        """Ends every call that runs, with `Interrupted`."""
        self._interrupted = True
        for task in self._running:
            task.cancel()

    def refuse(self, path: str, error: ServerError) -> None:
        """Counts and logs a call that ends before it is served; `path` is `/SERVICE/METHOD`."""
        metrics, method = self._metrics.unknown, path.rpartition("/")[2]
        if method in METHODS:
            metrics.requests_started[method].inc()
            metrics.requests[method][status_code(error).name].inc()
        if error.reason is not None:
            metrics.requests_rejected[error.reason].inc()
        self._log.info(
            "refused",
            method=method[:_MOST_METHOD_CHARACTERS],
            status=status_code(error).name,
            error=str(error),
        )

    @asynccontextmanager
    async def rpc(
        self,
        method: str,
        context: Context,
        model: str | None = None,
        task: Task | None = None,
        request_id: str = "",
    ) -> AsyncIterator[Call]:
        """Serves one RPC as one `request`, and ends it with the status of what went wrong."""
        try:
            async with self.request(method, context, model, task, request_id) as call:
                yield call
        except ServerError as error:
            await end(context, error)

    @asynccontextmanager
    async def request(
        self,
        method: str,
        context: Context,
        model: str | None = None,
        task: Task | None = None,
        request_id: str = "",
    ) -> AsyncIterator[Call]:
        """Serves one request, counting and logging how it ends.

        `model` is the name that the request gives, and None where it is for no model.

        Raises:
            ServerError: whatever goes wrong in the body, in a form that the caller may see.
            asyncio.CancelledError: the caller has gone.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        call = Call(
            method,
            request_id[:_MOST_ID_CHARACTERS] or uuid.uuid4().hex,
            began + self._patience(context),
            log_text=self._log_text,
        )
        metrics = self._metrics_of(model, task)
        problem: ServerError | None = None
        with self._counted(metrics, method):
            try:
                async with asyncio.timeout_at(call.deadline + _SLACK_SECONDS):
                    self._admit(call, model, task, request_id)
                    yield call
            except BaseException as error:
                problem = self._problem(error, context, call)
                gone = isinstance(error, asyncio.CancelledError) and not self._interrupted
                if gone or problem is error:
                    raise
                raise problem from error
            finally:
                self._account(call, context, metrics, problem, clock() - began)

    @contextmanager
    def _counted(self, metrics: CallMetrics, method: str) -> Iterator[None]:
        """Keeps count of what runs, so that it can be waited for and interrupted."""
        task = asyncio.current_task()
        assert task is not None, "a call is served by a task"
        metrics.requests_started[method].inc()
        metrics.requests_in_flight[method].inc()
        self._running.add(task)
        self._quiet.clear()
        try:
            yield
        finally:
            metrics.requests_in_flight[method].dec()
            self._running.discard(task)
            if not self._running:
                self._quiet.set()

    def _patience(self, context: Context) -> float:
        """Seconds that a request may take: the caller's deadline or the server's limit."""
        remaining = context.time_remaining()
        limit = self._max_request_seconds
        return limit if remaining is None else min(limit, remaining)

    def _metrics_of(self, model: str | None, task: Task | None) -> CallMetrics:
        try:
            return (
                self._metrics.unknown if model is None else self._models.find(model, task).metrics
            )
        except ServerError:
            return self._metrics.unknown

    def _admit(self, call: Call, model: str | None, task: Task | None, request_id: str) -> None:
        """Refuses a request on arrival, or settles which model it is for."""
        if not self.accepting:
            raise Draining("the server is starting or stopping; try another, or again soon")
        if len(request_id) > _MOST_ID_CHARACTERS:
            raise InvalidInput(
                f"request_id has {len(request_id)} characters; it must have at most "
                f"{_MOST_ID_CHARACTERS}"
            )
        if model is not None:
            call.found = self._models.find(model, task)

    def _problem(self, error: BaseException, context: Context, call: Call) -> ServerError:
        """What went wrong, in the terms of the protocol."""
        if isinstance(error, ServerError):
            return error
        if isinstance(error, TimeoutError):
            return DeadlinePassed("the request took longer than its deadline or the server allows")
        if isinstance(error, asyncio.CancelledError):
            if self._interrupted:
                return Interrupted("the server stopped before the request was complete")
            remaining = context.time_remaining()
            if remaining is not None and remaining < _DEADLINE_SECONDS:
                return DeadlinePassed("the caller's deadline passed")
            return Cancelled("the caller has gone")
        self._log.error("call failed", id=call.request_id, method=call.method, exc_info=error)
        return StepFailed("the server failed to serve this request; its log says why")

    def _account(
        self,
        call: Call,
        context: Context,
        metrics: CallMetrics,
        problem: ServerError | None,
        seconds: float,
    ) -> None:
        """Counts, traces and logs how a request ended."""
        code = "OK" if problem is None else status_code(problem).name
        metrics.requests[call.method][code].inc()
        if problem is None:
            metrics.request_duration[call.method].observe(seconds)
        elif problem.reason is not None:
            metrics.requests_rejected[problem.reason].inc()
        if self._tracing is not None:
            metadata = context.invocation_metadata() or ()
            call.facts["trace_id"] = self._tracing.record(call, metadata, code, seconds)
        self._log.info(
            "request",
            id=call.request_id,
            method=call.method,
            model=call.found.name if call.found else None,
            status=code,
            seconds=round(seconds, 6),
            **({"error": str(problem)} if problem else {}),
            **call.facts,
        )
