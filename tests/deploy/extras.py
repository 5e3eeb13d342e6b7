"""What the extras of the project install, and which modules are not among it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "formerd"


def closure(extras: Iterable[str]) -> set[str]:
    """The distributions that an installation of the project with these extras consists of."""
    found: set[str] = set()
    waiting = [Requirement(f"{PROJECT}[{','.join(sorted(extras))}]")]
    visited: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        name, wanted = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if (name, wanted) in visited:
            continue
        visited.add((name, wanted))
        found.add(name)
        waiting += _requirements(name, wanted)
    return found


@cache
def absent_modules(extras: frozenset[str]) -> list[str]:
    """The top-level modules that are installed here, and would not be with these extras alone."""
    present = closure(extras)
    return sorted(
        module
        for module, owners in packages_distributions().items()
        if present.isdisjoint(canonicalize_name(owner) for owner in owners)
    )


def _requirements(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What a distribution needs here; nothing where it is not installed, as on another platform."""
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        return []
    return [
        requirement
        for requirement in map(Requirement, lines)
        if requirement.marker is None
        or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]
