"""Flags and environment variables become settings, or an error that names flag, value and fix."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from export.manifest import Device
from server.options import ENVIRONMENT_PREFIX, server_options
from server.processors import usable_processors
from server.settings import Address, DeviceChoice, Settings


def run(
    *arguments: str, environment: dict[str, str] | None = None
) -> tuple[Result, list[Settings]]:
    """Runs a command with the server's options; also the settings that it got."""
    seen: list[Settings] = []

    @click.command(context_settings={"auto_envvar_prefix": ENVIRONMENT_PREFIX})
    @server_options
    def command(**options: object) -> None:
        seen.append(Settings.from_options(**options))  # type: ignore[arg-type]

    return CliRunner().invoke(command, arguments, env=environment), seen


def settings_of(*arguments: str, environment: dict[str, str] | None = None) -> Settings:
    result, seen = run(*arguments, environment=environment)
    assert result.exit_code == 0, result.output
    return seen[0]


def test_defaults() -> None:
    settings = settings_of("one", "two")
    assert settings.directories == (Path("one"), Path("two"))
    assert settings.listen == Address("127.0.0.1", 50051)
    assert settings.metrics_listen == Address("127.0.0.1", 9464)
    assert settings.device is None
    assert settings.threads == usable_processors()
    assert settings.slots == 16
    assert settings.max_message_bytes == settings.max_response_bytes == 4 * 1024 * 1024


@pytest.mark.parametrize(
    ("flag", "value", "field", "wanted"),
    [
        ("--listen", "[::1]:0", "listen", Address("::1", 0)),
        ("--metrics-listen", "0.0.0.0:9", "metrics_listen", Address("0.0.0.0", 9)),
        ("--device", "cpu", "device", DeviceChoice(Device.CPU)),
        ("--device", "cuda", "device", DeviceChoice(Device.CUDA)),
        ("--device", "cuda:3", "device", DeviceChoice(Device.CUDA, 3)),
        ("--slots", "2", "slots", 2),
        ("--prefix-cache-bytes", "0", "prefix_cache_bytes", 0),
        ("--max-wait-ms", "1.5", "max_wait_ms", 1.5),
        ("--trace-endpoint", "https://collector:4317", "trace_endpoint", "https://collector:4317"),
        (
            "--expect-digest",
            f"minilm=sha256:{'0' * 64}",
            "expect_digest",
            {"minilm": f"sha256:{'0' * 64}"},
        ),
    ],
)
def test_a_flag_and_its_environment_variable_set_the_same(
    flag: str, value: str, field: str, wanted: object
) -> None:
    variable = f"FORMERD_{flag.removeprefix('--').replace('-', '_').upper()}"
    assert getattr(settings_of("dir", flag, value), field) == wanted
    assert getattr(settings_of("dir", environment={variable: value}), field) == wanted


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--listen", "50051"),
        ("--listen", "host:"),
        ("--listen", "host:65536"),
        ("--device", "tpu"),
        ("--device", "cuda:"),
        ("--threads", "0"),
        ("--slots", "0"),
        ("--slots", "many"),
        ("--max-wait-ms", "-1"),
        ("--max-request-seconds", "0"),
        ("--max-request-seconds", "nan"),
        ("--grace-seconds", "nan"),
        ("--expect-digest", "minilm"),
        ("--expect-digest", "minilm=sha256:00"),
        ("--log-format", "xml"),
        ("--tls-key", "no/such/file"),
        ("--auth-token-file", "no/such/file"),
        ("--memory-limit", "0"),
        ("--trace-endpoint", "collector:4317"),
        ("--trace-endpoint", "grpc://collector"),
        ("--trace-endpoint", "http://"),
    ],
)
def test_nonsense_is_a_usage_error_that_names_flag_and_value(flag: str, value: str) -> None:
    result, _ = run("dir", flag, value)
    assert result.exit_code == 2
    assert flag in result.output
    assert value in result.output


def test_requests_are_traced_where_opentelemetry_is_told_to_send_spans() -> None:
    assert settings_of("dir").trace_endpoint is None
    everybodys = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:4317"}
    assert settings_of("dir", environment=everybodys).trace_endpoint == "http://all:4317"
    spans = {**everybodys, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://spans:4317"}
    assert settings_of("dir", environment=spans).trace_endpoint == "http://spans:4317"
    ours = {**spans, "FORMERD_TRACE_ENDPOINT": "http://ours:4317"}
    assert settings_of("dir", environment=ours).trace_endpoint == "http://ours:4317"


def test_no_directory_is_a_usage_error() -> None:
    result, _ = run()
    assert result.exit_code == 2
    assert "DIR" in result.output


def test_an_address_prints_as_it_is_given() -> None:
    assert str(Address("127.0.0.1", 80)) == "127.0.0.1:80"
    assert str(Address("::1", 80)) == "[::1]:80"
