"""How far training has come: a bar with the time left on a terminal, a line an epoch elsewhere."""

from __future__ import annotations

import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from examples.g2p.training import Epoch, Training

_SPEED_SECONDS = 120.0  # the time left is reckoned from the speed of so long


class TrainingProgress:
    """Shown on stdout, as a context manager."""

    def __init__(self, training: Training) -> None:
        console = Console(highlight=False, soft_wrap=True)
        self._epochs = training.recipe.epochs
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=_SPEED_SECONDS,
        )
        self._task = self._bar.add_task(
            "starting",
            total=self._epochs * training.batches_per_epoch,
            completed=len(training.history) * training.batches_per_epoch,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def batch_done(self, surprise: float) -> None:
        self._bar.update(self._task, advance=1, description=f"{surprise:.3f} nats a phone")

    def epoch_done(self, epoch: Epoch) -> None:
        left = timedelta(seconds=round(epoch.seconds * (self._epochs - epoch.number)))
        self._bar.console.print(
            f"{time.strftime('%H:%M:%S')} epoch {epoch.number} of {self._epochs}: "
            f"training {epoch.training_surprise:.4f}, validation {epoch.validation_surprise:.4f} "
            f"nats a phone; phone errors {epoch.phone_error_rate:.2%}, "
            f"word errors {epoch.word_error_rate:.2%} without stress; "
            f"{epoch.seconds:.0f} s, {left} left"
        )
