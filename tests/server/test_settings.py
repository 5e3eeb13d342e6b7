"""Settings that contradict each other are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from server.settings import Address, Settings, SettingsError, Tls
from tests.server.test_daemon import SETTINGS

TOKENS = Path("tokens")
TLS = Tls(Path("cert"), Path("key"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_tokens_may_come_over_the_loopback_in_the_clear(host: str) -> None:
    settings = replace(SETTINGS, listen=Address(host, 1), auth_token_file=TOKENS)
    assert not settings.exposes_tokens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "server.example", "*"])
def test_tokens_in_the_clear_on_a_network_have_to_be_asked_for(host: str) -> None:
    listen = Address(host, 1)
    with pytest.raises(SettingsError, match="--insecure-tokens"):
        replace(SETTINGS, listen=listen, auth_token_file=TOKENS)
    asked = replace(SETTINGS, listen=listen, auth_token_file=TOKENS, insecure_tokens=True)
    assert asked.exposes_tokens
    assert not replace(SETTINGS, listen=listen, auth_token_file=TOKENS, tls=TLS).exposes_tokens
    assert not replace(SETTINGS, listen=listen).exposes_tokens


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tls_cert": Path("cert")}, "--tls-cert and --tls-key belong together"),
        ({"tls_key": Path("key")}, "--tls-cert and --tls-key belong together"),
        ({"tls_client_ca": Path("ca")}, "--tls-client-ca needs"),
    ],
)
def test_half_of_tls_is_refused(given: dict[str, Path], message: str) -> None:
    files: dict[str, Any] = {"tls_cert": None, "tls_key": None, "tls_client_ca": None} | given
    with pytest.raises(SettingsError, match=message):
        Settings.from_options(expect_digest=(), **files)
