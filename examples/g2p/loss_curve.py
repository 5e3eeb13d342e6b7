"""The course of a training, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from examples.g2p.training import Epoch


def draw(history: Sequence[Epoch], output: Path) -> None:
    """Draws what was lowered, and the errors that are left, over the epochs.

    Raises:
        OSError: the file cannot be written.
    """
    numbers = [epoch.number for epoch in history]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    surprise, errors = figure.subplots(1, 2)
    surprise.plot(numbers, [epoch.training_surprise for epoch in history], label="training")
    surprise.plot(numbers, [epoch.validation_surprise for epoch in history], label="validation")
    surprise.set(xlabel="epoch", ylabel="nats a phone", ylim=(0, None))
    errors.plot(numbers, [100 * epoch.word_error_rate for epoch in history], label="words")
    errors.plot(numbers, [100 * epoch.phone_error_rate for epoch in history], label="phones")
    errors.set(xlabel="epoch", ylabel="wrong without stress, % of validation", ylim=(0, 60))
    for axes in (surprise, errors):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(output, dpi=110)
