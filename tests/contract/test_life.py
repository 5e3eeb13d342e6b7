"""CXL-03 and how a server starts: ports, artefacts, signals, grace and exit codes."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest
from formerd.v1 import generation_pb2 as pb
from grpc_health.v1 import health_pb2

from export.manifest import TOKENIZER_FILE, load_manifest
from tests.artefacts import decoder_artefact, encoder_artefact, learned_decoder_artefact
from tests.contract.stubs import Stubs, embed_request, error_of, generate_request
from tests.e2e.server_process import ServerProcess, running_server, starting_server

RUNNING, WAITING = 4, 8
LONG = generate_request("x", tokens=600)
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def stubs_of(server: ServerProcess) -> AsyncIterator[Stubs]:
    async with grpc.aio.insecure_channel(server.target) as channel:
        yield Stubs(channel)


async def begin(stubs: Stubs, count: int) -> list[asyncio.Task[str]]:
    """Streams that have been accepted; each task gives how its stream ends."""
    streams = [stubs.generation.GenerateStream(LONG) for _ in range(count)]
    await streams[0].read()

    async def outcome(
        stream: grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateEvent],
    ) -> str:
        with suppress(grpc.aio.AioRpcError):
            while await stream.read() is not grpc.aio.EOF:
                pass
        return (await stream.code()).name

    return [asyncio.create_task(outcome(stream)) for stream in streams]


async def test_what_was_accepted_is_completed_and_nothing_new_is() -> None:
    with running_server([learned_decoder_artefact()], "--slots", str(RUNNING)) as server:
        async with stubs_of(server) as stubs:
            watch = stubs.health.Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == SERVING
            accepted = await begin(stubs, RUNNING + WAITING)
            while server.metrics().total("formerd_queue_depth") < WAITING:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            server.signal(signal.SIGTERM)
            assert (await watch.read()).status == NOT_SERVING
            refused = await error_of(stubs.generation.Generate(generate_request()))
            assert refused.code() is grpc.StatusCode.UNAVAILABLE
            assert await asyncio.gather(*accepted) == ["OK"] * (RUNNING + WAITING)
        assert server.wait() == 0


@pytest.mark.parametrize(
    ("grace", "signals", "code"),
    [
        ("0.2", [signal.SIGTERM], 0),
        ("30", [signal.SIGTERM, signal.SIGTERM], 0),
        ("30", [signal.SIGINT, signal.SIGINT], 130),
    ],
)
async def test_what_is_left_gets_a_status(
    grace: str, signals: list[signal.Signals], code: int
) -> None:
    with starting_server(
        [learned_decoder_artefact()], "--slots", "1", "--grace-seconds", grace
    ) as server:
        server.wait_until_ready()
        async with stubs_of(server) as stubs:
            accepted = await begin(stubs, 4)
            for number in signals:
                server.signal(number)
                await asyncio.sleep(0.1)
            outcomes = await asyncio.gather(*accepted)
        assert "UNAVAILABLE" in outcomes
        assert set(outcomes) <= {"OK", "UNAVAILABLE"}
        assert server.wait() == code


def test_ctrl_c_once_drains() -> None:
    with running_server([encoder_artefact()]) as server:
        server.signal(signal.SIGINT)
        assert server.wait() == 0


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


@pytest.mark.parametrize("flag", ["--listen", "--metrics-listen"])
def test_a_port_in_use_is_a_clear_error(flag: str, taken_port: int) -> None:
    address = f"127.0.0.1:{taken_port}"
    assert_refused([encoder_artefact()], flag, address, says=f"{flag} {address}: ")


def test_a_second_server_does_not_share_the_port_of_the_first() -> None:
    with running_server([encoder_artefact()]) as first:
        assert_refused([encoder_artefact()], "--listen", first.target, says="--listen")


def test_two_artefacts_of_one_name_are_refused() -> None:
    directories = [encoder_artefact(), encoder_artefact()]
    assert_refused(directories, says="several artefacts are named tiny-encoder")


def test_another_device_than_the_artefacts_is_refused() -> None:
    assert_refused([encoder_artefact()], "--device", "cuda", says="built for cpu")


def test_a_cache_without_room_is_refused() -> None:
    assert_refused([decoder_artefact()], "--cache-bytes", "1000", says="raise --cache-bytes")


def test_memory_that_does_not_suffice_is_refused() -> None:
    limit = ("--memory-limit", "1000000")
    assert_refused([encoder_artefact()], *limit, says="raise --memory-limit")
    assert_refused([decoder_artefact()], *limit, says="raise --cache-bytes or --memory-limit")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    directory = shutil.copytree(encoder_artefact(), tmp_path / "damaged")
    with (directory / TOKENIZER_FILE).open("r+b") as file:
        file.write(b"?")
    assert_refused([directory], says=f"{directory}: {TOKENIZER_FILE} does not match its sha256")


def test_a_pinned_artefact_has_to_be_that_one() -> None:
    digest = load_manifest(encoder_artefact()).digest
    other = f"tiny-encoder=sha256:{'0' * 64}"
    assert_refused([encoder_artefact()], "--expect-digest", other, says="is expected")
    elsewhere = f"other={digest}"
    assert_refused([encoder_artefact()], "--expect-digest", elsewhere, says="names other")
    pin = f"tiny-encoder={digest}"
    with starting_server([encoder_artefact()], "--check", "--expect-digest", pin) as server:
        assert server.wait() == 0


def test_a_wrong_flag_is_a_usage_error() -> None:
    with starting_server([encoder_artefact()], "--slots", "none") as server:
        assert server.wait() == 2
        assert "--slots" in server.log()


@pytest.mark.parametrize("flags", [(), ("--log-text",)])
async def test_texts_are_not_logged_unless_they_are_asked_for(flags: tuple[str, ...]) -> None:
    with running_server([encoder_artefact(), decoder_artefact()], *flags) as server:
        async with stubs_of(server) as stubs:
            await stubs.embedding.Embed(embed_request("a secret", request_id="mine"))
            await stubs.generation.Generate(generate_request("a secret"))
        assert [line["method"] for line in server.events("request")] == ["Embed", "Generate"]
        assert server.events("request")[0]["id"] == "mine"
        assert server.log().count("a secret") == 2 * len(flags)


def assert_refused(directories: list[Path], *flags: str, says: str) -> None:
    """The server ends with 1, and its last line says why."""
    with starting_server(directories, *flags) as server:
        assert server.wait() == 1
        assert says in server.log().splitlines()[-1]
        assert "Traceback" not in server.log()
