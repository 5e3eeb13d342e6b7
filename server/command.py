"""The command `python -m server`: its options, its errors and its exit code."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from server.artefact import ArtefactError
from server.cuda import DeviceError
from server.daemon import Exit
from server.expendable import leave
from server.limits import LimitError
from server.listener import ListenError
from server.logs import configure_logs
from server.options import ENVIRONMENT_PREFIX, server_options
from server.self_check import CheckError
from server.settings import Settings, SettingsError
from server.startup import TracingError, run
from server.tls import TlsError
from server.token_file import TokenFileError

_FAILURES = (
    ArtefactError,
    CheckError,
    DeviceError,
    LimitError,
    ListenError,
    TlsError,
    TokenFileError,
    TracingError,
)


@click.command(
    context_settings={
        "auto_envvar_prefix": ENVIRONMENT_PREFIX,
        "show_default": True,
        "help_option_names": ["-h", "--help"],
    }
)
@server_options
@click.version_option(package_name="formerd", prog_name="formerd")
def main(**options: Any) -> None:
    """Serves the artefacts in DIR... over gRPC.

    SIGTERM or Ctrl-C stops it: what was accepted is completed within --grace-seconds, and a second
    one ends that at once. Every option is also an environment variable, FORMERD_ and its name:
    FORMERD_MAX_QUEUE for --max-queue.

    Exits with 0 after a stop, 1 if an artefact, a device or a port cannot be used or a model died
    or hangs, 2 for a wrong option, 130 if Ctrl-C was pressed twice or a signal ended --check.
    """
    try:
        settings = Settings.from_options(**options)
    except SettingsError as error:
        raise click.UsageError(str(error)) from None
    log = configure_logs(settings.log_format)
    try:
        code = asyncio.run(run(settings, log))
    except _FAILURES as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    leave(code)
