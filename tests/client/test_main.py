from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from client.__main__ import main
from tests.client.scripted_server import EndlessGeneration, Script, fail, serve

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def target(script: Script) -> Iterator[str]:
    with serve(script, EndlessGeneration()) as target:
        yield target


def test_embed_prints_a_table(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", target, "embed", "four", "[red]"]) == 0
    output = capsys.readouterr().out
    assert "four" in output
    assert "[red]" in output  # the caller's text is never markup
    assert "4.0000" in output


def test_embed_reads_lines_from_stdin(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nbb\n"))
    assert main(["--target", target, "--json", "embed", "-", "ccc"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [item["vector"][0] for item in result["items"]] == [1.0, 2.0, 3.0]


def test_a_failed_call_is_one_line_and_exit_code_1(
    target: str, script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    script.failures.append(fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", 1.0))
    assert main(["--target", target, "embed", "x"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: RESOURCE_EXHAUSTED: the queue is full (try again in 1 s)\n"


def test_the_token_is_read_from_its_file(target: str, script: Script, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    assert main(["--target", target, "--token-file", str(token), "embed", "x"]) == 0
    assert script.metadata["authorization"] == "Bearer secret"


def test_the_target_comes_from_the_environment(
    target: str, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORMERD_TARGET", target)
    assert main(["embed", "x"]) == 0
    assert script.calls == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["embed"],
        ["generate", "p", "--max-new-tokens", "-1"],
        ["generate", "p", "--system", "be brief"],
        ["generate", "p", "--stream", "--n", "2"],
        ["--tls-cert", __file__, "embed", "x"],
        ["--token-file", "no such file", "embed", "x"],
        ["--timeout", "0", "embed", "x"],
        ["embed", "\udcff"],
        ["sing"],
    ],
)
def test_mistakes_in_the_command_are_exit_code_2(
    target: str, script: Script, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--target", target, *arguments]) == 2
    assert "rror: " in capsys.readouterr().err
    assert script.calls == 0


def test_ctrl_c_in_the_middle_of_a_stream_cancels_the_call() -> None:
    generation = EndlessGeneration()
    with serve(Script(), generation) as target:
        process = subprocess.Popen(
            [sys.executable, "-m", "client", "--target", target, "generate", "hello", "--stream"],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.read(6) == b"hello."  # live: the stream never ends by itself
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=10)
        assert process.returncode == 130
        assert b"Traceback" not in stderr
        assert generation.cancelled.wait(5.0)
