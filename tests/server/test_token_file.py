"""Tokens come from a file, are read again when it changes, and never appear in the log."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from server.token_file import TokenFile, TokenFileError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("# of the search team\nfirst-token\n\n  second.token==  \n")
    return path


@pytest.fixture
def logged() -> LogCapture:
    return LogCapture()


@pytest.fixture
def log(logged: LogCapture) -> FilteringBoundLogger:
    log: FilteringBoundLogger = structlog.wrap_logger(
        None, [logged], structlog.make_filtering_bound_logger(0)
    )
    return log


def replace(path: Path, content: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(content)
    new.rename(path)


def test_every_line_but_comments_is_a_token(path: Path, log: FilteringBoundLogger) -> None:
    tokens = TokenFile(path, log)
    assert tokens.accepts("first-token")
    assert tokens.accepts("second.token==")
    for wrong in ("", "first-toke", "first-token ", "# of the search team", "third", "é\0"):
        assert not tokens.accepts(wrong), wrong


def test_a_change_counts_from_the_next_call(
    path: Path, log: FilteringBoundLogger, logged: LogCapture
) -> None:
    tokens = TokenFile(path, log)
    replace(path, "third-token\n")
    assert tokens.accepts("third-token")
    assert not tokens.accepts("first-token")
    assert [line["tokens"] for line in logged.entries] == [1]


def test_a_link_that_is_turned_is_a_change(tmp_path: Path, log: FilteringBoundLogger) -> None:
    """As Kubernetes replaces the files of a secret."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokens").write_text(f"token-{name}\n")
    link, turned = tmp_path / "data", tmp_path / "turned"
    link.symlink_to("one")
    tokens = TokenFile(link / "tokens", log)
    assert tokens.accepts("token-one")
    turned.symlink_to("two")
    turned.rename(link)
    assert tokens.accepts("token-two")
    assert not tokens.accepts("token-one")


@pytest.mark.parametrize("content", [None, "fine\nno token\n"])
def test_a_broken_file_leaves_the_tokens_and_is_logged_once(
    content: str | None, path: Path, log: FilteringBoundLogger, logged: LogCapture
) -> None:
    tokens = TokenFile(path, log)
    if content is None:
        path.unlink()
    else:
        replace(path, content)
    assert tokens.accepts("first-token")
    assert not tokens.accepts("fine")
    assert [line["log_level"] for line in logged.entries] == ["error"]
    assert "no token\n" not in str(logged.entries)


def test_an_emptied_file_accepts_nobody(path: Path, log: FilteringBoundLogger) -> None:
    tokens = TokenFile(path, log)
    replace(path, "# none\n")
    assert not tokens.accepts("first-token")
    assert not tokens.accepts("")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no token"),
        (b"# none\n", "holds no token"),
        (b"good\nse cret\n", "line 2 is no token"),
        ("schlüssel".encode(), "line 1 is no token"),
        (b"\xff\xfe", "is no text"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_its_content(
    content: bytes, message: str, path: Path, log: FilteringBoundLogger
) -> None:
    path.write_bytes(content)
    with pytest.raises(TokenFileError, match=message) as raised:
        TokenFile(path, log)
    assert "cret" not in str(raised.value)


def test_a_file_that_is_not_there_is_refused(path: Path, log: FilteringBoundLogger) -> None:
    with pytest.raises(TokenFileError, match="cannot be read: No such file"):
        TokenFile(path.with_name("other"), log)
