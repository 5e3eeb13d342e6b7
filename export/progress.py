"""How far long work has come: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Steps(Protocol):
    """Who is told."""

    def expect(self, steps: int) -> None:
        """So many more steps are to come."""

    def advance(self, label: str) -> None:
        """The step before is done; this one begins."""


class SilentSteps:
    """Nobody is told."""

    def expect(self, steps: int) -> None:
        pass

    def advance(self, label: str) -> None:
        pass


class ShownSteps:
    """Shown on stderr, as a context manager: a bar on a terminal, a line a step elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        if self._console.is_terminal:
            times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
            columns = (TextColumn("{task.description}"), BarColumn(), *times)
            self._bar = Progress(*columns, console=self._console, transient=True)
        self._task: TaskID | None = None
        self._expected = 0

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None, completed=-1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, steps: int) -> None:
        self._expected += steps
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=self._expected)

    def advance(self, label: str) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, description=label)
        else:
            print(label, file=sys.stderr, flush=True)
