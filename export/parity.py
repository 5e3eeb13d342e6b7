"""What the gate finds: checks, each with its shapes, its worst difference and its bound."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from export.manifest import PARITY_FILE, ManifestError, ParitySummary


@dataclass(frozen=True)
class Check:
    """One comparison.

    Attributes:
        name: what was compared.
        shape: at which shape or on which tensor.
        difference: the worst absolute difference; None where none can be told: the shapes differ,
            or either side holds NaN or infinity.
        bound: the largest difference that passes.
        note: what a number cannot say.
        accepted: whether it passes though it is beyond the bound, because somebody said so.
    """

    name: str
    shape: str
    difference: float | None
    bound: float
    note: str = ""
    accepted: bool = False

    @property
    def passed(self) -> bool:
        return self.difference is not None and (self.accepted or self.difference <= self.bound)

    def accept(self) -> Check:
        """The same, passed; but nobody accepts what is not a number."""
        return self if self.passed or self.difference is None else replace(self, accepted=True)

    def __str__(self) -> str:
        found = "no number" if self.difference is None else f"{self.difference:.3g}"
        text = f"{self.name} ({self.shape}): worst difference {found}, bound {self.bound:.3g}"
        return f"{text}; {self.note}" if self.note else text


@dataclass(frozen=True)
class Tolerance:
    """How far numbers may be from what is wanted.

    Attributes:
        relative: whether `value` counts standard deviations of each row, so that it means the same
            for logits of any size and for embeddings.
    """

    value: float
    relative: bool = False

    def compare(self, name: str, shape: str, found: ArrayLike, wanted: ArrayLike) -> Check:
        """Compares rows `[..., width]` of logits or embeddings."""
        found, wanted = np.asarray(found), np.asarray(wanted)
        check = compare(name, shape, found, wanted, self.value)
        if check.difference is None or not self.relative:
            return check
        return replace(check, difference=float(spreads(found, wanted).max(initial=0.0)))

    def compare_tokens(
        self, shape: str, found: Sequence[int], wanted: Sequence[int], scores: NDArray[Any]
    ) -> Check:
        """Compares greedy tokens; `scores [tokens, vocab]` are those that the wanted came from.

        Where the two likeliest tokens are closer than either may move, both are right, and the
        comparison ends there.
        """
        differing = [i for i, token in enumerate(wanted) if found[i] != token]
        if differing and self.ties(scores[differing[0]]):
            note = f"a tie at token {differing[0]}, where the comparison ends"
            return Check("greedy tokens", shape, 0.0, 0.0, note)
        note = f"the first at token {differing[0]}" if differing else ""
        return Check("greedy tokens", shape, float(len(differing)), 0.0, note)

    def ties(self, scores: NDArray[Any]) -> bool:
        """Whether either of a row's two largest numbers `[width]` may be found the larger."""
        second, first = np.sort(scores)[-2:]
        unit = float(scores.std(dtype=np.float64)) if self.relative else 1.0
        return bool(first - second <= 2 * self.value * unit)


@dataclass(frozen=True)
class ParityReport:
    """Everything that the gate checked.

    Attributes:
        traced: graph file -> initializer -> the source tensors that it was compared with.
        computed: graph file -> initializers that were recomputed from the configuration.
        unused: source tensors that the family's table lists as unused.
    """

    tolerance: float
    checks: tuple[Check, ...]
    traced: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    computed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)

    def summary(self) -> ParitySummary:
        """The part that the manifest repeats; the worst is of what the tolerance bounds."""
        differences = [
            check.difference
            for check in self.checks
            if check.difference is not None and check.bound == self.tolerance
        ]
        return ParitySummary(
            checks=len(self.checks),
            worst_difference=max(differences, default=0.0),
            tolerance=self.tolerance,
            accepted=tuple(str(check) for check in self.checks if check.accepted),
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Reads parity.json.

        Raises:
            ManifestError: it is no parity report.
        """
        names = [each.name for each in fields(Check)]
        try:
            values = json.loads(content)
            return cls(
                tolerance=values["tolerance"],
                checks=tuple(
                    Check(**{name: check[name] for name in names}) for check in values["checks"]
                ),
                traced={
                    file: {name: tuple(sources) for name, sources in tensors.items()}
                    for file, tensors in values["traced"].items()
                },
                computed={file: tuple(tables) for file, tables in values["computed"].items()},
                unused=tuple(values["unused"]),
            )
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ManifestError(f"{PARITY_FILE} is no parity report: {error!r}") from None

    def to_json(self) -> dict[str, Any]:
        """The content of parity.json."""
        checks = [asdict(check) | {"passed": check.passed} for check in self.checks]
        return asdict(self) | {"checks": checks}


def compare(name: str, shape: str, found: ArrayLike, wanted: ArrayLike, bound: float) -> Check:
    """Compares what the runtime found with what eager PyTorch wants."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        note = f"shape {list(found.shape)} instead of {list(wanted.shape)}"
        return Check(name, shape, None, bound, note)
    sides = {"the graph": found, "the reference": wanted}
    if wild := [side for side, values in sides.items() if not np.isfinite(values).all()]:
        return Check(name, shape, None, bound, f"NaN or infinity in {' and '.join(wild)}")
    return Check(name, shape, _worst_difference(found, wanted), bound)


def spreads(found: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.float64]:
    """The worst difference of each row `[..., width]`, in standard deviations of the wanted row."""
    differences = np.abs(found.astype(np.float64) - wanted).max(axis=-1, initial=0.0)
    deviations = wanted.std(axis=-1, dtype=np.float64)
    return np.asarray(differences / np.maximum(deviations, np.finfo(np.float64).tiny))


def _worst_difference(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """In double precision, without a second copy of a large tensor that is equal."""
    if np.array_equal(found, wanted):
        return 0.0
    return float(np.abs(found.astype(np.float64) - wanted).max(initial=0.0))
