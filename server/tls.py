"""The server's certificate, and whose certificates it asks its callers for."""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

import grpc
from structlog.typing import FilteringBoundLogger

from server.settings import Tls
from server.watched_files import WatchedFiles


class TlsError(Exception):
    """Certificates that cannot be used; names the flag and the file."""


def server_credentials(tls: Tls, log: FilteringBoundLogger) -> grpc.ServerCredentials:
    """Credentials that follow the files: a renewed certificate is that of the next connection.

    With `client_ca`, a caller has to show a certificate of that authority.

    Raises:
        TlsError: a file cannot be read, is no PEM, or the key is not the certificate's.
    """
    watched = WatchedFiles(*tls.files)

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        """What has changed; None keeps what there is."""
        if not watched.changed():
            return None
        try:
            configuration = _configuration(tls)
        except TlsError as error:
            log.error("certificates stay as they were", error=str(error))
            return None
        log.info("certificates read again")
        return configuration

    return grpc.dynamic_ssl_server_credentials(
        _configuration(tls),
        renewed,  # type: ignore[arg-type]  # None is allowed
        require_client_authentication=tls.client_ca is not None,
    )


def _configuration(tls: Tls) -> grpc.ServerCertificateConfiguration:
    _check(tls)
    return grpc.ssl_server_certificate_configuration(
        [(_read("--tls-key", tls.key), _read("--tls-cert", tls.certificate))],
        None if tls.client_ca is None else _read("--tls-client-ca", tls.client_ca),
    )


def _check(tls: Tls) -> None:
    """Has OpenSSL read the files: gRPC would say no more than that it cannot listen."""
    for flag, path in (("--tls-cert", tls.certificate), ("--tls-key", tls.key)):
        _read(flag, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key, password="")
    except (ssl.SSLError, ValueError):
        raise TlsError(
            f"--tls-cert {tls.certificate}, --tls-key {tls.key}: no certificate with its key, both "
            "PEM and without a password"
        ) from None
    if tls.client_ca is None:
        return
    _read("--tls-client-ca", tls.client_ca)
    with suppress(ssl.SSLError, ValueError):
        context.load_verify_locations(tls.client_ca)
    if not context.cert_store_stats()["x509_ca"]:
        raise TlsError(f"--tls-client-ca {tls.client_ca}: holds no authority's certificate (PEM)")


def _read(flag: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"{flag} {path}: cannot be read: {error.strerror}") from None
