"""The command against a server that answers by rule: what is right passes, what is not is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from client.__main__ import main
from client.load import command
from tests.client.load.parrot import Parrot, serve
from tests.client.scripted_server import Fail, fail

LATER = fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", 0.01)
NEVER = fail(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")
BROKEN = fail(grpc.StatusCode.INTERNAL, "a step failed")
GONE = fail(grpc.StatusCode.UNAVAILABLE, "stopping")


def load(parrot: Parrot, *arguments: str) -> int:
    """The exit code of a short load."""
    brief = ("--clients", "3", "--seconds", "0.2")
    with serve(parrot) as target:
        return main(["--target", target, "--json", "load", *brief, *arguments])


def read(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("profile", ["embed", "generate", "stream", "mixed"])
def test_right_answers_are_no_fault(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert load(Parrot(), "--profile", profile) == 0
    report = read(capsys)
    assert report["faults"] == []
    kinds = {"embed", "generate", "stream"} if profile == "mixed" else {profile}
    assert set(report["calls"]) == kinds
    for calls in report["calls"].values():
        assert calls["ends"]["answered"] > 5
        assert 0 < calls["latency"]["p50"] <= calls["latency"]["max"]
        assert set(calls["ends"]) == {"answered"} or profile == "mixed"


@pytest.mark.parametrize("profile", ["embed", "generate", "stream"])
@pytest.mark.parametrize(
    ("failure", "wrong"),
    [(None, "wrong"), (BROKEN, "lost"), (NEVER, "lost"), (GONE, "lost")],
    ids=["changed", "failed", "refused for good", "gone"],
)
def test_what_goes_wrong_is_found(
    profile: str, failure: Fail | None, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(Parrot(failure, wrong=1), "--profile", profile) == 1
    faults = read(capsys)["faults"]
    assert faults
    assert {fault["wrong"] for fault in faults} == {wrong}


def test_to_be_told_to_come_back_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(Parrot(failure=LATER), "--profile", "generate") == 0
    assert read(capsys)["calls"]["generate"]["ends"]["refused"] > 0


def test_an_open_loop_calls_as_often_as_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--profile", "embed", "--rate", "100", "--seconds", "1")
    for ramp, mean in (((), 100), (("--ramp",), 50)):
        assert load(Parrot(), *arguments, *ramp) == 0
        [calls] = read(capsys)["calls"].values()
        assert 0.5 * mean < calls["ends"]["answered"] < 1.5 * mean


def test_a_seed_draws_the_same_questions_again() -> None:
    asked = []
    for seed in ("1", "1", "2"):
        parrot = Parrot()
        assert load(parrot, "--seed", seed) == 0
        asked.append(parrot.texts[:20])
    assert asked[0] == asked[1] != asked[2]


def test_questions_are_cut_to_what_the_model_takes() -> None:
    parrot = Parrot()
    assert load(parrot) == 0
    lengths = {len(text) for text in parrot.texts}
    assert max(lengths) == 64 - 8
    assert min(lengths) < 20


def test_the_table_says_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(Parrot(wrong=1)) as target:
        arguments = ["load", "--profile", "embed", "--seconds", "0.2"]
        assert main(["--target", target, *arguments]) == 1
    output = capsys.readouterr().out
    assert "embed" in output
    assert "wrong: load-" in output


def test_a_report_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "report"
    assert load(Parrot(), "--report", str(directory)) == 0
    assert json.loads((directory / "load.json").read_text()) == read(capsys)
    assert (directory / "load.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_a_report_is_refused_before_the_load(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    parrot = Parrot()
    assert load(parrot, "--report", str(tmp_path)) == 2
    assert "matplotlib" in capsys.readouterr().err
    assert parrot.texts == []


@pytest.mark.parametrize(
    "arguments", [["--ramp"], ["--embedder", "nobody"], ["--rate", "0"], ["--profile", "none"]]
)
def test_a_load_that_cannot_be_is_a_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(Parrot(), *arguments) == 2
    assert "rror: " in capsys.readouterr().err


def test_without_a_server_there_is_no_load(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(Parrot()) as target:
        pass
    assert main(["--target", target, "load"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().err
