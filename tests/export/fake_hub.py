"""A hub of one repository on the loopback, which can break a download off in the middle."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeHub:
    """What it has, and what it was asked for.

    Attributes:
        repository: `org/name`.
        files: path -> content.
        breaks: paths whose first download ends half way.
        downloads: path and range of every download that was asked for.
    """

    repository: str
    files: Mapping[str, bytes]
    breaks: set[str] = field(default_factory=set)
    downloads: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serving(hub: FakeHub) -> Iterator[str]:
    """The address of the hub while it is there."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, hub))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, hub: FakeHub, *arguments: Any) -> None:
        self._hub = hub
        super().__init__(*arguments)

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *arguments: Any) -> None:
        pass

    def _answer(self) -> None:
        path, api = urlsplit(self.path).path, f"/api/models/{self._hub.repository}"
        files = f"/{self._hub.repository}/resolve/{COMMIT}/"
        if path == f"{api}/revision/main":
            self._send_json({"id": self._hub.repository, "sha": COMMIT})
        elif path.startswith(f"{api}/tree/{COMMIT}"):
            self._send_json([_entry(*item) for item in self._hub.files.items()])
        elif path.startswith(files) and path.removeprefix(files) in self._hub.files:
            self._send_file(path.removeprefix(files))
        else:
            self.send_error(404)

    def _send_json(self, values: object) -> None:
        self._send(200, json.dumps(values).encode(), {"Content-Type": "application/json"})

    def _send_file(self, name: str) -> None:
        content, asked = self._hub.files[name], self.headers["Range"]
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        if self.command == "GET":
            self._hub.downloads.append((name, asked))
        if asked:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self._send(206, content[start:], headers)
        elif self.command == "GET" and name in self._hub.breaks:
            self._hub.breaks.remove(name)
            self._send(200, content, headers, sent=len(content) // 2)
        else:
            self._send(200, content, headers)

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str], sent: int | None = None
    ) -> None:
        """Announces the whole body and sends its first `sent` bytes, by default all."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[:sent])


def _entry(path: str, content: bytes) -> dict[str, object]:
    oid = hashlib.sha1(content).hexdigest()
    return {"type": "file", "path": path, "size": len(content), "oid": oid}
