"""The server's settings, as plain data; `server.options` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from export.manifest import Device


class SettingsError(ValueError):
    """Settings that contradict each other; names the flags."""


@dataclass(frozen=True)
class Address:
    """Where to listen; port 0 lets the system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether nobody but this machine can reach it; a name other than localhost may be any."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True)
class DeviceChoice:
    """The device to run on; `index` counts GPUs."""

    device: Device
    index: int = 0


@dataclass(frozen=True)
class Tls:
    """Files (PEM) of the server's certificate, and of the authority of its callers'."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """All of them."""
        paths = (self.certificate, self.key, self.client_ca)
        return tuple(path for path in paths if path is not None)


@dataclass(frozen=True)
class Settings:
    """Everything that can be set; None where the default depends on the artefacts.

    Sizes are in bytes, lengths in tokens, times in the unit of their name.
    """

    directories: tuple[Path, ...]
    listen: Address
    metrics_listen: Address
    device: DeviceChoice | None
    threads: int
    slots: int
    max_length: int | None
    cache_bytes: int | None
    prefix_cache_bytes: int | None
    memory_limit: int | None
    max_batch_tokens: int | None
    max_queue: int
    max_queue_tokens: int | None
    max_wait_ms: float
    prefill_chunk: int | None
    max_request_seconds: float
    max_message_bytes: int
    max_response_bytes: int
    grace_seconds: float
    tls: Tls | None
    auth_token_file: Path | None
    insecure_tokens: bool
    expect_digest: dict[str, str]
    log_format: str
    log_text: bool
    trace_endpoint: str | None
    check: bool

    @classmethod
    def from_options(
        cls,
        *,
        expect_digest: tuple[tuple[str, str], ...],
        tls_cert: Path | None,
        tls_key: Path | None,
        tls_client_ca: Path | None,
        **options: Any,
    ) -> Self:
        """From the values of `server.options`, each checked already.

        Raises:
            SettingsError: they contradict each other.
        """
        tls = _read_tls(tls_cert, tls_key, tls_client_ca)
        return cls(expect_digest=dict(expect_digest), tls=tls, **options)

    def __post_init__(self) -> None:
        if self.exposes_tokens and not self.insecure_tokens:
            raise SettingsError(
                f"--auth-token-file on --listen {self.listen} would send tokens over the network "
                "in the clear: give --tls-cert and --tls-key, or --insecure-tokens where something "
                "else encrypts"
            )

    @property
    def exposes_tokens(self) -> bool:
        """Whether tokens come over a network that this server does not encrypt."""
        return self.auth_token_file is not None and self.tls is None and not self.listen.loopback


def _read_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    if certificate is not None and key is not None:
        return Tls(certificate, key, client_ca)
    if certificate is not None or key is not None:
        raise SettingsError("--tls-cert and --tls-key belong together: give both or neither")
    if client_ca is not None:
        raise SettingsError("--tls-client-ca needs --tls-cert and --tls-key")
    return None
