"""What a load is: who calls what, how often, and how patiently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class LoadError(ValueError):
    """A load that cannot be; the message says what to change."""


class Kind(StrEnum):
    """What is called."""

    EMBED = "embed"
    GENERATE = "generate"
    STREAM = "stream"


@dataclass(frozen=True)
class Profile:
    """A mixture of calls and callers.

    Attributes:
        name: what the command line calls it.
        kinds: the weight of each kind of call.
        leaving: the share of callers who go at a random moment, most of them before the end.
        hurried: the share of callers with a random deadline, which many calls miss.
    """

    name: str
    kinds: Mapping[Kind, float]
    leaving: float = 0.0
    hurried: float = 0.0


_PROFILES = (
    Profile("embed", {Kind.EMBED: 1.0}),
    Profile("generate", {Kind.GENERATE: 1.0}),
    Profile("stream", {Kind.STREAM: 1.0}),
    Profile(
        "mixed",
        {Kind.EMBED: 0.4, Kind.GENERATE: 0.3, Kind.STREAM: 0.3},
        leaving=0.15,
        hurried=0.15,
    ),
)
PROFILES = {profile.name: profile for profile in _PROFILES}


@dataclass(frozen=True)
class Plan:
    """One load.

    Attributes:
        profile: the mixture.
        clients: connections. In a closed loop each makes one call after the other; in an open loop
            they share the calls.
        seconds: for how long calls begin.
        rate: calls a second, at random moments (Poisson), whether or not earlier ones have ended;
            None is a closed loop.
        ramp: whether the rate grows from nothing to `rate` over the seconds.
        seed: of everything that is drawn at random.
        timeout: seconds; the deadline of every call that has no shorter one.

    Raises:
        LoadError: they contradict each other.
    """

    profile: Profile
    clients: int
    seconds: float
    rate: float | None = None
    ramp: bool = False
    seed: int = 0
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.ramp and self.rate is None:
            raise LoadError("a ramp needs the rate that it leads to: give --rate with --ramp")
