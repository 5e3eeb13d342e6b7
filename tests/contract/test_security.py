"""A server with mutual TLS and tokens, from outside: who is served, and what the others learn."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from formerd.v1 import embedding_pb2, generation_pb2, models_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from client.__main__ import main as client_command
from client.aio import AsyncClient
from client.connection import Connection, Tls
from tests.artefacts import encoder_artefact
from tests.certificates import Authority, Certificate
from tests.contract.stubs import Stubs, embed_request, error_of
from tests.e2e.server_process import ServerProcess, running_server, starting_server

TOKEN = "the-token-of-the-tests"
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@dataclass(frozen=True)
class Secured:
    """A server, what it trusts, and what a client needs."""

    server: ServerProcess
    authority: Authority
    client: Certificate
    tokens: Path

    def connection(self, token: str | None = TOKEN) -> Connection:
        certificate, key = self.client.chain.read_bytes(), self.client.key.read_bytes()
        tls = Tls(self.authority.path.read_bytes(), certificate, key)
        return Connection(self.server.target, tls, token)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority, tokens = Authority(directory), directory / "tokens"
    own = authority.issue("server")
    tokens.write_text(f"# of the tests\n{TOKEN}\n")
    flags = ("--tls-cert", own.chain, "--tls-key", own.key, "--tls-client-ca", authority.path)
    with running_server(
        [encoder_artefact()], *map(str, flags), "--auth-token-file", str(tokens)
    ) as server:
        yield Secured(server, authority, authority.issue("client"), tokens)


@pytest.fixture
async def channel(secured: Secured) -> AsyncIterator[grpc.aio.Channel]:
    """A connection with a certificate, which sends no token by itself."""
    async with secured.connection().open_async() as channel:
        yield channel


def every_call(channel: grpc.aio.Channel, **options: Any) -> list[Any]:
    """One call of each method, and of one that there is not; health is not among them.

    Those that stream both ways send nothing: a client of grpc.aio that still sends when it is
    refused may say INTERNAL of its own.
    """
    stubs = Stubs(channel)
    unknown: Any = channel.unary_unary("/formerd.v1.Other/Method")
    reflection: Any = ServerReflectionStub(channel)  # type: ignore[arg-type]
    return [
        stubs.embedding.Embed(embed_request("a"), **options),
        stubs.embedding.EmbedStream(**options),
        stubs.generation.Generate(generation_pb2.GenerateRequest(), **options),
        stubs.generation.GenerateStream(generation_pb2.GenerateRequest(), **options),
        stubs.models.ListModels(models_pb2.ListModelsRequest(), **options),
        stubs.models.GetModel(models_pb2.GetModelRequest(), **options),
        stubs.models.Tokenize(models_pb2.TokenizeRequest(), **options),
        stubs.models.Detokenize(models_pb2.DetokenizeRequest(), **options),
        reflection.ServerReflectionInfo(**options),
        unknown(b"", **options),
    ]


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
    ],
)
async def test_every_service_but_health_asks_for_the_token(
    authorization: str | None, secured: Secured, channel: grpc.aio.Channel
) -> None:
    before = secured.server.metrics()
    metadata = [] if authorization is None else [("authorization", authorization)]
    for call in every_call(channel, metadata=metadata, timeout=10):
        error = await error_of(call)
        assert error.code() is UNAUTHENTICATED
        assert TOKEN not in str(error.details())
    health = await Stubs(channel).health.Check(health_pb2.HealthCheckRequest(), metadata=metadata)
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    after = secured.server.metrics()

    def more(name: str, **labels: str) -> float:
        return after.total(name, labels) - before.total(name, labels)

    assert more("formerd_requests_rejected_total", reason="unauthenticated") == 10
    assert more("formerd_requests_started_total") == 8  # the methods of ours
    assert more("formerd_requests_total", code="UNAUTHENTICATED", model="unknown") == 8


async def test_with_the_token_everything_is_served(channel: grpc.aio.Channel) -> None:
    outcomes = []
    for call in every_call(channel, metadata=[("authorization", f"bearer {TOKEN}")]):
        with suppress(grpc.aio.AioRpcError):
            if hasattr(call, "done_writing"):
                await call.done_writing()
        outcomes.append((await call.code()).name)
    assert outcomes == [
        *("OK", "OK", "INVALID_ARGUMENT", "INVALID_ARGUMENT"),  # there is no model to generate with
        *("OK", "OK", "OK", "OK", "OK", "UNIMPLEMENTED"),
    ]


async def test_the_clients_send_certificate_and_token(
    secured: Secured, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncClient(secured.connection()) as client:
        assert [model.name for model in await client.models()] == ["tiny-encoder"]
        assert len((await client.embed("a", "b")).vectors) == 2
    (secured.tokens.parent / "token").write_text(f"{TOKEN}\n")
    flags = {
        "--target": secured.server.target,
        "--tls-ca": secured.authority.path,
        "--tls-cert": secured.client.chain,
        "--tls-key": secured.client.key,
        "--token-file": secured.tokens.parent / "token",
    }
    arguments = [str(part) for flag in flags.items() for part in flag]
    assert client_command([*arguments, "--json", "models"]) == 0
    assert "tiny-encoder" in capsys.readouterr().out


async def test_without_a_certificate_there_is_no_connection(secured: Secured) -> None:
    tls = Tls(secured.authority.path.read_bytes())
    async with Connection(secured.server.target, tls, TOKEN).open_async() as channel:
        error = await error_of(Stubs(channel).health.Check(health_pb2.HealthCheckRequest()))
    assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_changed_file_counts_for_connections_that_exist(
    secured: Secured, channel: grpc.aio.Channel
) -> None:
    embed = Stubs(channel).embedding.Embed
    old, new = (("authorization", f"Bearer {token}") for token in (TOKEN, "another"))
    assert (await error_of(embed(embed_request("a"), metadata=[new]))).code() is UNAUTHENTICATED
    secured.tokens.write_text("another\n")
    try:
        assert isinstance(
            await embed(embed_request("a"), metadata=[new]), embedding_pb2.EmbedResponse
        )
        assert (await error_of(embed(embed_request("a"), metadata=[old]))).code() is UNAUTHENTICATED
    finally:
        secured.tokens.write_text(f"{TOKEN}\n")


async def test_tokens_are_never_logged(secured: Secured, channel: grpc.aio.Channel) -> None:
    for token in (TOKEN, "a-wrong-one"):
        call = Stubs(channel).models.ListModels(
            models_pb2.ListModelsRequest(), metadata=[("authorization", f"Bearer {token}")]
        )
        await call.code()
    assert secured.server.events("refused")
    assert TOKEN not in secured.server.log()
    assert "a-wrong-one" not in secured.server.log()


def test_tokens_in_the_clear_are_refused_or_warned_of(tmp_path: Path) -> None:
    """Written like this it is the loopback, but nothing that the server knows to be."""
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    flags = ("--auth-token-file", str(tmp_path / "tokens"), "--listen", "LOCALHOST:0")
    with starting_server([encoder_artefact()], *flags) as server:
        assert server.wait() == 2
        assert "--insecure-tokens" in server.log()
    with running_server([encoder_artefact()], *flags, "--insecure-tokens") as server:
        [warning] = [
            line for line in map(json.loads, server.log().splitlines()) if line["level"] != "info"
        ]
        assert "in the clear" in warning["event"]
        server.signal(signal.SIGTERM)


def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no PEM\n")
    with starting_server(
        [encoder_artefact()], "--tls-cert", str(broken), "--tls-key", str(broken)
    ) as server:
        assert server.wait() == 1
        assert server.log().splitlines()[-1].startswith(f"Error: --tls-cert {broken}")
