"""The bearer tokens that are accepted, from a file that may change while the server runs."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from server.watched_files import WatchedFiles

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_COMMENT = "#"


class TokenFileError(Exception):
    """A file of tokens that cannot be used; names the file and the line, never a token."""


class TokenFile:
    """The tokens of a file: one a line, beside empty lines and comments (`#`).

    The file is read again whenever it has changed. One that then cannot be used leaves the tokens
    as they were, and an error in the log; one without tokens accepts nobody.

    Kept are digests, not the tokens.

    Raises:
        TokenFileError: the file cannot be read, is malformed or holds no token.
    """

    def __init__(self, path: Path, log: FilteringBoundLogger) -> None:
        self._path = path
        self._log = log
        self._watched = WatchedFiles(path)
        self._digests = _read(path)
        if not self._digests:
            raise TokenFileError(f"{path}: holds no token; write one a line")

    def accepts(self, token: str) -> bool:
        """Whether the token is one of the file's; the time that it takes tells nothing."""
        self._refresh()
        given = _digest(token)
        return sum(hmac.compare_digest(given, known) for known in self._digests) > 0

    def _refresh(self) -> None:
        if not self._watched.changed():
            return
        try:
            self._digests = _read(self._path)
        except TokenFileError as error:
            self._log.error("tokens stay as they were", error=str(error))
        else:
            self._log.info("tokens read again", tokens=len(self._digests))


def _read(path: Path) -> list[bytes]:
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise TokenFileError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TokenFileError(f"{path}: is no text") from None
    digests = []
    for number, line in enumerate(lines, start=1):
        token = line.strip()
        if not token or token.startswith(_COMMENT):
            continue
        if not _TOKEN.fullmatch(token):
            raise TokenFileError(
                f"{path}: line {number} is no token; it may have letters, digits and -._~+/ only, "
                "and = at its end"
            )
        digests.append(_digest(token))
    return digests


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
