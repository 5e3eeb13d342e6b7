"""Certificates for tests, of an authority that lives as long as the test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificate:
    """A certificate chain and its key, PEM, as files."""

    chain: Path
    key: Path


class Authority:
    """Signs certificates, and writes them to a directory.

    Attributes:
        path: its own certificate, PEM.
    """

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        self._authority = trustme.CA()
        self.path = directory / f"{name}.pem"
        self._authority.cert_pem.write_to_path(self.path)

    def issue(self, name: str) -> Certificate:
        """A certificate for 127.0.0.1, in `AUTHORITY-NAME.pem` and `AUTHORITY-NAME.key`."""
        return self.renew(
            Certificate(
                self._directory / f"{self._name}-{name}.pem",
                self._directory / f"{self._name}-{name}.key",
            )
        )

    def renew(self, certificate: Certificate) -> Certificate:
        """The same files with a new certificate and a new key."""
        issued = self._authority.issue_cert("127.0.0.1", "localhost")
        _replace(certificate.key, issued.private_key_pem.bytes())
        _replace(certificate.chain, b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return certificate


def _replace(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.rename(path)
