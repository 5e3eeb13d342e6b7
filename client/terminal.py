"""How results look: tables and live text for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from client.errors import CallFailed
from client.results import (
    Chunk,
    Completion,
    Embeddings,
    Event,
    Finished,
    Generation,
    Model,
    Summary,
    TokenLogprob,
)

_SHOWN_VALUES = 4
_SHOWN_CHARACTERS = 48
_SHOWN_DIGITS = 12  # of a digest: enough to tell builds apart; --json has all


def print_json(value: Any) -> None:
    """One line of JSON; dataclasses are objects."""
    click.echo(json.dumps(value, default=_plain, ensure_ascii=False))


def print_embeddings(texts: Sequence[str], result: Embeddings) -> None:
    """A table: each text with the beginning of its vector, or with its error."""
    table = Table(box=None, header_style="bold")
    table.add_column("text", no_wrap=True)
    table.add_column("tokens", justify="right")
    table.add_column("vector")
    for text, item in zip(texts, result.items, strict=True):
        if item.vector is None:
            shown = Text(str(item.error), style="red")
        else:
            values = " ".join(f"{value: .4f}" for value in item.vector[:_SHOWN_VALUES])
            shown = Text(f"{values} … ({len(item.vector)})")
        table.add_row(Text(_shorten(text)), str(item.token_count), shown)
    results().print(table)


def print_generation(result: Generation) -> None:
    """The text of each completion on stdout; what it cost on stderr."""
    for completion in result.completions:
        if len(result.completions) > 1:
            notes().print(f"completion {completion.index}", style="bold")
        click.echo(completion.text)
        _print_logprobs(completion.logprobs)
    _print_summary(_reasons(result.completions), result.summary)


def print_stream(events: Iterable[Event]) -> None:
    """The text of one completion as it comes; what it cost on stderr."""
    logprobs: list[TokenLogprob] = []
    reason = ""
    for event in events:
        match event:
            case Chunk():
                click.echo(event.text, nl=False)
                logprobs += event.logprobs
            case Finished():
                reason = event.finish_reason
                click.echo()
            case Summary():
                _print_logprobs(logprobs)
                _print_summary(reason, event)


def print_stream_json(events: Iterable[Event]) -> None:
    """One object a line, named by its kind: chunk, finished, summary."""
    for event in events:
        print_json({type(event).__name__.lower(): event})


def print_models(models: Sequence[Model]) -> None:
    """A table of what is loaded."""
    table = Table(box=None, header_style="bold")
    for column in ("model", "kind", "precision", "provider", "limits", "digest"):
        table.add_column(column, no_wrap=column in ("model", "digest"))
    for model in models:
        table.add_row(
            model.name,
            model.kind,
            model.precision,
            model.provider.removesuffix("ExecutionProvider"),
            _limits(model),
            model.digest.removeprefix("sha256:")[:_SHOWN_DIGITS],
        )
    results().print(table)


def print_error(error: CallFailed) -> None:
    """One line on stderr."""
    hint = "" if error.retry_after is None else f" (try again in {error.retry_after:g} s)"
    notes().print(Text(f"error: {error}{hint}", style="red"), soft_wrap=True)


def results() -> Console:
    """Stdout."""
    return Console()


def notes() -> Console:
    """Stderr, for what is not the result."""
    return Console(stderr=True, highlight=False)


def _print_logprobs(logprobs: Sequence[TokenLogprob]) -> None:
    if not logprobs:
        return
    table = Table(box=None, header_style="bold")
    table.add_column("token")
    table.add_column("logprob", justify="right")
    table.add_column("instead of")
    for item in logprobs:
        others = "  ".join(f"{other.token!r} {other.logprob:.3f}" for other in item.top)
        table.add_row(Text(repr(item.token)), f"{item.logprob:.3f}", Text(others))
    notes().print(table)


def _print_summary(reasons: str, summary: Summary) -> None:
    _print_logprobs(summary.prompt_logprobs)
    usage, timing = summary.usage, summary.timing
    parts = [
        f"ended by {reasons}",
        f"{usage.prompt_tokens} + {usage.completion_tokens} tokens",
        f"first after {timing.time_to_first_token:.3f} s",
    ]
    if timing.decode > 0:  # the first token came with the prompt
        parts.append(f"{(usage.completion_tokens - 1) / timing.decode:.1f} tokens/s")
    parts.append(f"seed {summary.seed}")
    notes().print(Text(" · ".join(parts), style="dim"), soft_wrap=True)


def _reasons(completions: Sequence[Completion]) -> str:
    return ", ".join(completion.finish_reason for completion in completions)


def _limits(model: Model) -> str:
    limits = []
    if model.dimensions:
        limits.append(f"{model.max_input_tokens} tokens to {model.dimensions} values")
    if model.slots:
        limits.append(f"{model.slots} slots of {model.capacity} tokens")
    return ", ".join(limits)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 1] + "…"


def _plain(value: Any) -> Any:
    if isinstance(value, CallFailed):
        return {
            "code": value.code.name,
            "message": value.message,
            "retry_after": value.retry_after,
        }
    return asdict(value)
