"""The server's flags and their environment variables: FORMERD_ and the flag's name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from export.manifest import NAME_PATTERN, Device
from server.processors import usable_processors
from server.settings import Address, DeviceChoice

ENVIRONMENT_PREFIX = "FORMERD"

# Those that every program with OpenTelemetry knows come after our own.
_ENDPOINT_VARIABLES = [
    f"{ENVIRONMENT_PREFIX}_TRACE_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
]
_DIGEST_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")
_MIB = 1 << 20


def _address(value: str) -> Address:
    host, separator, port = value.rpartition(":")
    if not (separator and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise click.BadParameter(f"{value!r} is no address; give it as 127.0.0.1:50051")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _device(value: str) -> DeviceChoice:
    match = re.fullmatch(r"(cpu|cuda)|cuda:(\d{1,3})", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is no device; give cpu, cuda or cuda:INDEX")
    return DeviceChoice(Device(match[1] or "cuda"), int(match[2] or 0))


def _endpoint(value: str) -> str:
    url = urlsplit(value)
    if url.scheme not in ("http", "https") or not url.netloc:
        raise click.BadParameter(
            f"{value!r} is no collector's address; give it as http://127.0.0.1:4317, or https://"
        )
    return value


def _pin(value: str) -> tuple[str, str]:
    model, _, digest = value.partition("=")
    if not (NAME_PATTERN.fullmatch(model) and _DIGEST_PATTERN.fullmatch(digest)):
        raise click.BadParameter(
            f"{value!r} is no pin; give MODEL=sha256: and 64 hex digits, as "
            "`python -m export inspect` prints them"
        )
    return model, digest


class _FiniteRange(click.FloatRange):
    """A range that NaN, which no comparison catches, is outside of."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


_COUNT = click.IntRange(min=1)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_SECONDS = _FiniteRange(min=0, min_open=True, max=1e6)

_OPTIONS = (
    click.argument(
        "directories",
        metavar="DIR...",
        nargs=-1,
        required=True,
        type=click.Path(path_type=Path),
    ),
    click.option(
        "--listen",
        type=_address,
        metavar="HOST:PORT",
        default="127.0.0.1:50051",
        help="Where to serve gRPC; port 0 takes a free one.",
    ),
    click.option(
        "--metrics-listen",
        type=_address,
        metavar="HOST:PORT",
        default="127.0.0.1:9464",
        help="Where to serve /metrics over HTTP; port 0 takes a free one.",
    ),
    click.option(
        "--device",
        type=_device,
        metavar="cpu|cuda[:INDEX]",
        default=None,
        help="Device to run on.  [default: what the artefacts were built for]",
    ),
    click.option(
        "--threads",
        type=_COUNT,
        default=usable_processors,
        show_default="the processors that the container may use",
        help="Threads that compute, shared by all models.",
    ),
    click.option(
        "--slots",
        type=click.IntRange(1, 1024),
        default=16,
        help="Completions that a model generates at the same time.",
    ),
    click.option(
        "--max-length",
        type=_COUNT,
        default=None,
        help="Most tokens of prompt and completion together; of a source, and of a target.  "
        "[default: the model's limit]",
    ),
    click.option(
        "--cache-bytes",
        type=_COUNT,
        default=None,
        help="Memory for keys and values, all models together.  [default: 25 % of what is free]",
    ),
    click.option(
        "--prefix-cache-bytes",
        type=click.IntRange(min=0),
        default=None,
        help="Memory for beginnings of prompts and encoded sources, beside --cache-bytes; "
        "0 keeps none.  "
        "[default: a quarter of --cache-bytes]",
    ),
    click.option(
        "--memory-limit",
        type=_COUNT,
        default=None,
        help="Most bytes of memory that the server may take; one that needs more does not start.  "
        "[default: what the machine and the container leave]",
    ),
    click.option(
        "--max-batch-tokens",
        type=_COUNT,
        default=None,
        help="Padded tokens of a batch to embed.  [default: 2048, on CUDA 16384]",
    ),
    click.option(
        "--max-queue",
        type=_COUNT,
        default=512,
        help="Requests that may wait for a model; more are refused.",
    ),
    click.option(
        "--max-queue-tokens",
        type=_COUNT,
        default=None,
        help="Tokens that may wait for a model.  [default: 64 x the capacity of a slot]",
    ),
    click.option(
        "--max-wait-ms",
        type=_FiniteRange(0, 10_000),
        default=0.0,
        help="How long a batch to embed waits for company, in milliseconds.",
    ),
    click.option(
        "--prefill-chunk",
        type=_COUNT,
        default=None,
        help="Tokens of a prompt, or of sources, computed between two decode steps.  "
        "[default: 64, on CUDA 512]",
    ),
    click.option(
        "--max-request-seconds",
        type=_SECONDS,
        default=600.0,
        help="Longest life of any request.",
    ),
    click.option(
        "--max-message-bytes",
        type=click.IntRange(1024, (1 << 31) - 1),
        default=4 * _MIB,
        help="Largest request.",
    ),
    click.option(
        "--max-response-bytes",
        type=click.IntRange(1024, (1 << 31) - 1),
        default=4 * _MIB,
        help="Largest response; what could exceed it is refused on arrival.",
    ),
    click.option(
        "--grace-seconds",
        type=_FiniteRange(0, 1e6),
        default=30.0,
        help="How long accepted requests may run on after SIGTERM.",
    ),
    click.option(
        "--expect-digest",
        type=_pin,
        metavar="MODEL=sha256:HEX",
        multiple=True,
        help="Refuse to serve MODEL unless it is this very artefact; repeatable.",
    ),
    click.option(
        "--tls-cert",
        type=_FILE,
        metavar="FILE",
        default=None,
        help="Certificate chain (PEM) to serve with TLS; read again when it changes.",
    ),
    click.option(
        "--tls-key", type=_FILE, metavar="FILE", default=None, help="Private key of --tls-cert."
    ),
    click.option(
        "--tls-client-ca",
        type=_FILE,
        metavar="FILE",
        default=None,
        help="Serve only clients with a certificate of these authorities (PEM): mutual TLS.",
    ),
    click.option(
        "--auth-token-file",
        type=_FILE,
        metavar="FILE",
        default=None,
        help="Serve only calls with a bearer token of this file, one a line (# for comments); read "
        "again when it changes. Health needs none.",
    ),
    click.option(
        "--insecure-tokens",
        is_flag=True,
        help="Take tokens without TLS on any address: anybody on the way can read and use them.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["json", "text"]),
        default="json",
        help="One JSON object a line, or lines for reading.",
    ),
    click.option(
        "--log-text", is_flag=True, help="Log prompts and completions: for debugging only."
    ),
    click.option(
        "--trace-endpoint",
        type=_endpoint,
        metavar="URL",
        envvar=_ENDPOINT_VARIABLES,
        default=None,
        help="Send OpenTelemetry spans of requests to this collector (OTLP over gRPC), such as "
        "http://127.0.0.1:4317; needs the extra `tracing`.  [default: "
        "$OTEL_EXPORTER_OTLP_ENDPOINT, else none]",
    ),
    click.option(
        "--check",
        is_flag=True,
        help="Load, warm up, have each model answer once, and exit instead of serving.",
    ),
)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a click command every option of the server."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
