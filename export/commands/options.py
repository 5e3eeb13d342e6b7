"""What the options of several commands have in common."""

from __future__ import annotations

from enum import StrEnum

import click

SOURCE_HELP = """SOURCE is a directory with config.json and *.safetensors, a .gguf file,
package:NAME for a checkpoint that an installed Python package carries, or a hub id org/name."""


def choice(values: type[StrEnum]) -> click.Choice[str]:
    """The members' values; click would show their names."""
    return click.Choice([value.value for value in values])
