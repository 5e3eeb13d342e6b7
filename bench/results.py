"""What `bench.generate` measures, as plain data that runs in pieces add to one file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class MemoryCeiling:
    """How fast weights could be read at best.

    Attributes:
        bytes_per_second: the machine's memory, read by all threads.
        weight_bytes: what a decode step reads of each formerd model, by its name.
    """

    bytes_per_second: float
    weight_bytes: dict[str, int]

    def milliseconds(self, engine: str) -> float:
        """The least that a step can take at batch 1."""
        return 1e3 * self.weight_bytes[engine] / self.bytes_per_second


@dataclass(frozen=True)
class StepTime:
    """One engine at one batch size and so many positions: medians."""

    engine: str
    batch: int
    positions: int
    prefill_tokens_per_second: float
    decode_milliseconds: float


@dataclass(frozen=True)
class Throughput:
    """One system with the mixed workload; `batch` is the size that was best for it."""

    system: str
    batch: int
    tokens: int
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Percentiles:
    """Of many times, in seconds."""

    p50: float
    p99: float


@dataclass(frozen=True)
class Latencies:
    """What the callers of an open-loop run had to wait."""

    requests: int
    requests_per_second: float
    first_token: Percentiles
    between_tokens: Percentiles


@dataclass(frozen=True)
class StepParts:
    """Where the time of a decode step goes, in milliseconds by part; the sum is the step."""

    label: str
    milliseconds: dict[str, float]


@dataclass
class Results:
    """Everything that has been measured; None or empty where a section has not run."""

    machine: str = ""
    memory: MemoryCeiling | None = None
    steps: list[StepTime] = field(default_factory=list)
    mixed: list[Throughput] = field(default_factory=list)
    open_loop: Latencies | None = None
    parts: list[StepParts] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Self:
        """What earlier runs wrote; empty where there is no file."""
        if not path.exists():
            return cls()
        content = json.loads(path.read_text())
        memory, open_loop = content["memory"], content["open_loop"]
        for times in ("first_token", "between_tokens") if open_loop else ():
            open_loop[times] = Percentiles(**open_loop[times])
        return cls(
            content["machine"],
            memory and MemoryCeiling(**memory),
            [StepTime(**each) for each in content["steps"]],
            [Throughput(**each) for each in content["mixed"]],
            open_loop and Latencies(**open_loop),
            [StepParts(**each) for each in content["parts"]],
        )

    def write(self, path: Path) -> None:
        """Replaces the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    def add_steps(self, steps: list[StepTime]) -> None:
        """Replaces the figures that were measured again."""
        for step in steps:
            if earlier := self.step(step.engine, step.batch, step.positions):
                self.steps.remove(earlier)
            self.steps.append(step)

    def add_mixed(self, mixed: list[Throughput]) -> None:
        """Replaces the figures of the systems that were measured again."""
        again = {each.system for each in mixed}
        self.mixed = [each for each in self.mixed if each.system not in again] + mixed

    def step(self, engine: str, batch: int, positions: int) -> StepTime | None:
        """One figure, where it was measured."""
        wanted = (engine, batch, positions)
        return next((s for s in self.steps if (s.engine, s.batch, s.positions) == wanted), None)

    def throughput(self, system: str) -> float | None:
        """Tokens a second of a system with the mixed workload, where it was measured."""
        return next((t.tokens_per_second for t in self.mixed if t.system == system), None)
