"""`/metrics` over HTTP, on a port of its own."""

from __future__ import annotations

from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from server.listener import ListenError
from server.settings import Address


class MetricsServer:
    """Serves a registry from a thread.

    Raises:
        ListenError: the port is taken, or the host is not this machine's.
    """

    def __init__(self, address: Address, registry: CollectorRegistry) -> None:
        self._server: WSGIServer
        self._thread: Thread
        try:
            self._server, self._thread = start_http_server(address.port, address.host, registry)
        except OSError as error:
            raise ListenError(f"--metrics-listen {address}: {error.strerror}") from None
        self.address = Address(address.host, self._server.server_port)

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
