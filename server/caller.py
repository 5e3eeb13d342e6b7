"""Who calls, as far as the server can tell: by the bearer token of the call."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

_SCHEME = "bearer "


def bearer_token(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The token of the call's `authorization: Bearer TOKEN`; None without one."""
    for key, value in metadata:
        if key != "authorization" or not isinstance(value, str):
            continue
        if value[: len(_SCHEME)].lower() == _SCHEME:
            return value[len(_SCHEME) :].strip()
    return None


def partition_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Which callers share computed prefixes: those of one token; empty for those without.

    A digest, so that the token itself is kept nowhere.
    """
    token = bearer_token(metadata)
    return "" if token is None else hashlib.sha256(token.encode()).hexdigest()
