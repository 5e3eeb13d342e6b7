"""Where the server is and how to reach it."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from grpc import aio

DEFAULT_TARGET = "127.0.0.1:50051"

_OPTIONS: tuple[tuple[str, int], ...] = (
    # A call may be silent for minutes (a queue, a long prefill): without pings a proxy or a NAT on
    # the way forgets the connection. The server allows a ping every ten seconds.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # The server bounds its answers (--max-response-bytes); a second bound here would only differ.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)


@dataclass(frozen=True)
class Tls:
    """PEM bytes for an encrypted connection.

    Attributes:
        ca: the authorities to trust; None means those of the system.
        certificate, key: the client's own, where the server asks for one; both or neither.
    """

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: give both or neither")


@dataclass(frozen=True)
class Connection:
    """A server's address, and what proves who is calling.

    Attributes:
        target: `HOST:PORT`, or any other gRPC target (`unix:`, `dns:`).
        tls: None sends everything in the clear, the token included.
        token: sent as `authorization: Bearer <token>` with every call.
        shared: whether channels of this process share one connection to the target, as gRPC does
            unless told otherwise.
    """

    target: str = DEFAULT_TARGET
    tls: Tls | None = None
    token: str | None = None
    shared: bool = True

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)

    def open(self) -> grpc.Channel:
        """A channel for `client.sync`."""
        if self.tls is None:
            return grpc.insecure_channel(self.target, options=self._options)
        return grpc.secure_channel(self.target, _credentials(self.tls), options=self._options)

    def open_async(self) -> aio.Channel:
        """A channel for `client.aio`."""
        if self.tls is None:
            return aio.insecure_channel(self.target, options=self._options)
        return aio.secure_channel(self.target, _credentials(self.tls), options=self._options)

    @property
    def _options(self) -> tuple[tuple[str, int], ...]:
        return (*_OPTIONS, ("grpc.use_local_subchannel_pool", int(not self.shared)))


def as_connection(target: Connection | str) -> Connection:
    """A plain target means a connection in the clear."""
    return Connection(target) if isinstance(target, str) else target


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
