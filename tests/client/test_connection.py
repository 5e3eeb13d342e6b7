from __future__ import annotations

import pytest

from client.connection import Connection, Tls, as_connection


def test_a_plain_target_is_a_connection_in_the_clear() -> None:
    assert as_connection("host:1") == Connection("host:1", tls=None, token=None)
    assert as_connection(Connection("host:1", token="t")).metadata == (
        ("authorization", "Bearer t"),
    )


@pytest.mark.parametrize("half", [{"certificate": b"c"}, {"key": b"k"}])
def test_half_an_identity_is_refused(half: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="both or neither"):
        Tls(**half)
