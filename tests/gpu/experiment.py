"""One experiment on a GPU: what it measured, and which of its criteria hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]

LOGIT_DIFFERENCE = 0.15
LOGIT_COSINE = 0.9995
EMBEDDING_COSINE = 0.9999


@dataclass
class Findings:
    """What an experiment finds; it passes where every criterion holds.

    Attributes:
        measured: numbers and texts, for reading.
        criteria: what had to hold, and whether it did.
    """

    measured: dict[str, Any] = field(default_factory=dict)
    criteria: dict[str, bool] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return bool(self.criteria) and all(self.criteria.values())

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


@dataclass(frozen=True)
class Setting:
    """What an experiment works with, as `tests.gpu.prepare` has written it.

    Attributes:
        encoder, decoder: artefacts for CUDA.
        references: what the models compute in fp32 on the CPU, by name.
    """

    encoder: Path
    decoder: Path
    references: dict[str, NDArray[Any]]

    @classmethod
    def load(cls, directory: Path) -> Setting:
        with np.load(directory / "references.npz") as stored:
            references = dict(stored)
        return cls(directory / "encoder", directory / "decoder", references)


Experiment = Callable[[Setting, Findings], None]


def compare_logits(findings: Findings, name: str, found: Rows, wanted: Rows) -> None:
    """Within the bounds of fp16, and the same token wherever the two likeliest are further apart.

    `found` and `wanted` are `[n, vocab]`, a step each.
    """
    differences = np.abs(found - wanted).max(axis=1)  # [n]
    cosines = row_cosines(found, wanted)
    ordered = np.sort(wanted, axis=1)
    decided = ordered[:, -1] - ordered[:, -2] > 2 * differences
    same = found.argmax(axis=1) == wanted.argmax(axis=1)
    findings.measured |= {
        f"{name}: largest difference": float(differences.max()),
        f"{name}: smallest cosine": float(cosines.min()),
        f"{name}: same token": f"{int(same.sum())} of {len(same)}",
    }
    findings.criteria |= {
        f"{name}: finite": bool(np.isfinite(found).all()),
        f"{name}: difference <= {LOGIT_DIFFERENCE}": bool(differences.max() <= LOGIT_DIFFERENCE),
        f"{name}: cosine > {LOGIT_COSINE}": bool(cosines.min() > LOGIT_COSINE),
        f"{name}: same token wherever it is decided": bool(same[decided].all()),
    }


def compare_embeddings(findings: Findings, name: str, found: Rows, wanted: Rows) -> None:
    """Within the bound of fp16: `[n, d_model]` each."""
    cosines = row_cosines(found, wanted)
    findings.measured[f"{name}: smallest cosine"] = float(cosines.min())
    findings.criteria |= {
        f"{name}: finite": bool(np.isfinite(found).all()),
        f"{name}: cosine > {EMBEDDING_COSINE}": bool(cosines.min() > EMBEDDING_COSINE),
    }


def row_cosines(found: Rows, wanted: Rows) -> NDArray[np.float64]:
    """The cosine of each pair of rows."""
    first, second = found.astype(np.float64), wanted.astype(np.float64)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(axis=1) / np.maximum(lengths, 1e-30))
