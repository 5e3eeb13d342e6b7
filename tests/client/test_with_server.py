"""Both clients and the command line against the real server, with tiny models."""

from __future__ import annotations

import json
from collections.abc import Iterator

import grpc
import pytest

from client.__main__ import main
from client.aio import AsyncClient
from client.errors import CallFailed
from client.options import Message
from client.results import Chunk, Finished, Summary
from client.sync import Client
from tests.artefacts import decoder_artefact, encoder_artefact
from tests.e2e.server_process import ServerProcess, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server([encoder_artefact(), decoder_artefact()]) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.target, timeout=60) as client:
        yield client


def test_what_is_loaded(client: Client) -> None:
    models = {model.name: model for model in client.models()}
    assert {name: model.kind for name, model in models.items()} == {
        "tiny-encoder": "encoder",
        "tiny-decoder": "decoder",
    }
    assert client.model("tiny-encoder") == models["tiny-encoder"]
    assert models["tiny-encoder"].dimensions == 64
    assert models["tiny-decoder"].slots == 16
    with pytest.raises(CallFailed) as caught:
        client.model("nobody")
    assert caught.value.code is grpc.StatusCode.NOT_FOUND


def test_health_of_the_server_and_of_a_model(client: Client) -> None:
    assert client.health() == "SERVING"
    assert client.health("formerd.v1/tiny-decoder") == "SERVING"
    with pytest.raises(CallFailed) as caught:
        client.health("nobody")
    assert caught.value.code is grpc.StatusCode.NOT_FOUND


def test_tokens_there_and_back(client: Client) -> None:
    text = "the lion and the lamb"
    tokens = client.tokenize(text, model="tiny-decoder")
    assert "".join(text[token.start : token.end] for token in tokens) == text
    assert client.detokenize([token.id for token in tokens], model="tiny-decoder") == text


def test_texts_and_their_ids_embed_alike(client: Client) -> None:
    ids = [token.id for token in client.tokenize("the lion", model="tiny-encoder")]
    first, second = client.embed("the lion", ids).vectors
    assert first == pytest.approx(second, abs=1e-6)
    assert sum(value * value for value in first) == pytest.approx(1.0, abs=1e-5)


def test_a_stream_says_what_the_answer_says(client: Client) -> None:
    turns = [Message("user", "hello")]
    whole = client.generate(turns, max_new_tokens=12, temperature=0.8, seed=7, ignore_eos=True)
    events = list(client.stream(turns, max_new_tokens=12, temperature=0.8, seed=7, ignore_eos=True))
    chunks = [event for event in events if isinstance(event, Chunk)]
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert sum((chunk.token_ids for chunk in chunks), ()) == whole.completions[0].token_ids
    assert isinstance(events[-2], Finished)
    assert isinstance(events[-1], Summary)
    assert events[-1].usage == whole.summary.usage
    assert events[-1].seed == whole.summary.seed == 7


async def test_the_asynchronous_client_gets_the_same(server: ServerProcess, client: Client) -> None:
    async with AsyncClient(server.target, timeout=60) as other:
        answer = await other.generate("the lion", max_new_tokens=5)
        assert answer.text == client.generate("the lion", max_new_tokens=5).text
        assert await other.models() == client.models()
        assert await other.model("tiny-encoder") == client.model("tiny-encoder")
        assert await other.health() == "SERVING"
        tokens = await other.tokenize("the lion", model="tiny-decoder")
        ids = [token.id for token in tokens]
        assert await other.detokenize(ids, model="tiny-decoder") == "the lion"


def test_a_bad_parameter_is_named(client: Client) -> None:
    with pytest.raises(CallFailed, match=r"top_p") as caught:
        client.generate("the lion", top_p=2.0)
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(CallFailed, match=r"inputs\[1\]"):
        client.embed("fine", "a" * 4000)


def test_the_command_line(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[str, str]:
        assert main(["--target", server.target, *arguments]) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    assert run("health") == ("SERVING\n", "")
    assert "tiny-encoder" in run("models")[0]
    wanted = ["generate", "hello", "--chat", "--system", "be brief", "--max-new-tokens", "6"]
    text, notes = run(*wanted)
    assert "6 tokens" in notes
    assert run(*wanted, "--stream")[0] == text
    assert "instead of" in run("generate", "hello", "--top-logprobs", "2", "--stream")[1]
    answer = json.loads(run("--json", *wanted)[0])
    assert answer["completions"][0]["text"] + "\n" == text
    events = [json.loads(line) for line in run("--json", *wanted, "--stream")[0].splitlines()]
    assert [next(iter(event)) for event in events[-2:]] == ["finished", "summary"]


def test_the_command_line_fails_as_the_call_does(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--target", server.target, "generate", "x", "--top-p", "2"]) == 1
    assert "INVALID_ARGUMENT" in capsys.readouterr().err
    assert main(["--target", server.target, "health", "nobody"]) == 1
