"""Who calls: by the bearer token, in whatever case its scheme is written."""

from __future__ import annotations

import pytest

from server.caller import bearer_token, partition_of


@pytest.mark.parametrize(
    ("metadata", "token"),
    [
        ((), None),
        ((("user-agent", "x"), ("authorization", "Bearer abc")), "abc"),
        ((("authorization", "bearer  abc "),), "abc"),
        ((("authorization", "Basic abc"),), None),
        ((("authorization", "Basic abc"), ("authorization", "Bearer abc")), "abc"),
        ((("authorization-bin", b"Bearer abc"),), None),
        ((("authorization", "Bearer "),), ""),
    ],
)
def test_a_token_is_found(metadata: tuple[tuple[str, str | bytes], ...], token: str | None) -> None:
    assert bearer_token(metadata) == token


def test_a_partition_is_one_of_a_token_and_does_not_hold_it() -> None:
    one, two = (partition_of([("authorization", f"Bearer {token}")]) for token in ("one", "two"))
    assert len({one, two, partition_of([])}) == 3
    assert partition_of([]) == ""
    assert "one" not in one
    assert partition_of([("authorization", "BEARER one")]) == one
