"""The server's settings, as plain data; `server.options` reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from export.manifest import Device


@dataclass(frozen=True)
class Address:
    """Where to listen; port 0 lets the system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class DeviceChoice:
    """The device to run on; `index` counts GPUs."""

    device: Device
    index: int = 0


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
    max_batch_tokens: int | None
    max_queue: int
    max_queue_tokens: int | None
    max_wait_ms: float
    prefill_chunk: int | None
    max_request_seconds: float
    max_message_bytes: int
    max_response_bytes: int
    grace_seconds: float
    expect_digest: dict[str, str]
    log_format: str
    log_text: bool
    check: bool

    @classmethod
    def from_options(cls, *, expect_digest: tuple[tuple[str, str], ...], **options: Any) -> Self:
        """From the values of `server.options`, each checked already."""
        return cls(expect_digest=dict(expect_digest), **options)
