"""Certificates: who can connect, renewal, and files that cannot be used."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from structlog.testing import LogCapture

from server.settings import Tls
from server.tls import TlsError, server_credentials
from tests.certificates import Authority, Certificate

METHOD = "/a.Service/Method"


class Answers(grpc.GenericRpcHandler):
    """Answers every method."""

    def service(self, handler_call_details: Any) -> Any:
        async def answer(request: bytes, _context: Any) -> bytes:
            return request

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def logged() -> LogCapture:
    return LogCapture()


@asynccontextmanager
async def listening(tls: Tls, logged: LogCapture) -> AsyncIterator[str]:
    """A server with these certificates; its address."""
    log = structlog.wrap_logger(None, [logged], structlog.make_filtering_bound_logger(0))
    server = grpc.aio.server(handlers=[Answers()])
    port = server.add_secure_port("127.0.0.1:0", server_credentials(tls, log))
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def answers(target: str, trusted: Authority, shown: Certificate | None = None) -> bool:
    """Whether a client that trusts an authority, and shows a certificate, is served."""
    credentials = grpc.ssl_channel_credentials(
        trusted.path.read_bytes(),
        shown.key.read_bytes() if shown else None,
        shown.chain.read_bytes() if shown else None,
    )
    # A pool of its own, or a new channel would use the connection of one before.
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(target, credentials, options) as channel:
        method: Any = channel.unary_unary(METHOD)
        code = await method(b"x", timeout=5).code()
    assert code in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE)  # or no handshake
    return code is grpc.StatusCode.OK


async def test_only_who_trusts_the_authority_connects(
    authority: Authority, tmp_path: Path, logged: LogCapture
) -> None:
    own = authority.issue("server")
    async with listening(Tls(own.chain, own.key), logged) as target:
        assert await answers(target, authority)
        assert not await answers(target, Authority(tmp_path, "other"))
        async with grpc.aio.insecure_channel(target) as channel:
            method: Any = channel.unary_unary(METHOD)
            with pytest.raises(grpc.aio.AioRpcError):
                await method(b"x", timeout=5)


async def test_mutual_tls_serves_only_clients_of_the_authority(
    authority: Authority, tmp_path: Path, logged: LogCapture
) -> None:
    own = authority.issue("server")
    async with listening(Tls(own.chain, own.key, authority.path), logged) as target:
        assert await answers(target, authority, authority.issue("client"))
        assert not await answers(target, authority)
        stranger = Authority(tmp_path, "other").issue("client")
        assert not await answers(target, authority, stranger)


async def test_a_renewed_certificate_is_that_of_the_next_connection(
    authority: Authority, tmp_path: Path, logged: LogCapture
) -> None:
    own = authority.issue("server")
    other = Authority(tmp_path, "other")
    async with listening(Tls(own.chain, own.key), logged) as target:
        assert await answers(target, authority)
        other.renew(own)
        assert await answers(target, other)
        assert not await answers(target, authority)
        own.key.write_bytes(b"broken")
        assert await answers(target, other)
    events = [line["event"] for line in logged.entries]
    assert events == ["certificates read again", "certificates stay as they were"]


@pytest.mark.parametrize("broken", ["no file", "no PEM", "another's key"])
def test_files_that_cannot_be_used_are_refused_by_flag(
    broken: str, authority: Authority, logged: LogCapture
) -> None:
    own = authority.issue("server")
    if broken == "no file":
        own.key.unlink()
    elif broken == "no PEM":
        own.key.write_text("key")
    else:
        own.key.write_bytes(authority.issue("other").key.read_bytes())
    with pytest.raises(TlsError, match=f"--tls-key {own.key}"):
        server_credentials(Tls(own.chain, own.key), structlog.wrap_logger(None, [logged]))


@pytest.mark.parametrize("content", [b"", b"no PEM", "é".encode()])
def test_an_authority_that_is_none_is_refused(
    content: bytes, authority: Authority, logged: LogCapture
) -> None:
    own = authority.issue("server")
    authority.path.write_bytes(content)
    with pytest.raises(TlsError, match="--tls-client-ca"):
        server_credentials(
            Tls(own.chain, own.key, authority.path), structlog.wrap_logger(None, [logged])
        )
