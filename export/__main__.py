"""python -m export: build, verify and inspect artefacts, and look inside a model."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import FrameType
from typing import Any

import click

from export.exit_codes import FAILED, INTERRUPTED, TERMINATED, USAGE

_MODULES = {  # of export.commands
    "build": "building",
    "verify": "verifying",
    "inspect": "inspecting",
    "attention": "attending",
}


class _Commands(click.Group):
    """Loads a command when it is asked for: `build` must not have loaded what others need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        command: click.Command = import_module(f"export.commands.{_MODULES[cmd_name]}").command
        return command


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def cli() -> None:
    """Turns a transformer checkpoint into a verified ONNX artefact.

    Exit codes: 0 done, 1 a check failed or the checkpoint cannot be used, 2 wrong usage,
    130 interrupted.
    """


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(TERMINATED)  # an exception, so that unfinished output is removed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, by default the one that the process was started with; its exit code."""
    command: Callable[..., Any] = cli.main
    try:
        exit_code = command(arguments, prog_name="python -m export", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except Exception as error:
        from export.failures import FAILURES, USAGE_ERRORS  # now, because it loads everything

        if not isinstance(error, USAGE_ERRORS + FAILURES):
            raise
        click.echo(f"error: {error}", err=True)
        return USAGE if isinstance(error, USAGE_ERRORS) else FAILED
    return exit_code or 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(main())
