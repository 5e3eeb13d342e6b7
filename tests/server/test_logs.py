"""One line an event, also for what libraries log."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from server.logs import configure_logs


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def test_json_lines_carry_level_and_time() -> None:
    stream = io.StringIO()
    configure_logs("json", stream).info("request", id="mine", seconds=0.5)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["level"], line["id"], line["seconds"]) == (
        "request",
        "info",
        "mine",
        0.5,
    )
    assert line["timestamp"].endswith("Z")


def test_an_exception_stays_on_one_line() -> None:
    stream = io.StringIO()
    log = configure_logs("json", stream)
    try:
        raise RuntimeError("why")
    except RuntimeError:
        log.exception("call failed")
    [line] = stream.getvalue().splitlines()
    assert "RuntimeError: why" in json.loads(line)["exception"]


def test_what_libraries_warn_of_looks_the_same() -> None:
    stream = io.StringIO()
    configure_logs("json", stream)
    logging.getLogger("grpc").warning("careful %s", "there")
    logging.getLogger("grpc").info("chatter")
    [line] = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "careful there"


def test_text_is_for_reading() -> None:
    stream = io.StringIO()
    configure_logs("text", stream).info("serving", listen="127.0.0.1:1")
    assert "serving" in stream.getvalue()
    assert "listen=127.0.0.1:1" in stream.getvalue()
