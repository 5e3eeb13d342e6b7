"""Runs a module as `python -m` does, as if some others were not installed.

    python without_modules.py ABSENT,ABSENT,... MODULE ARGUMENT...

No connection to anything but the loopback is let through either.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from ipaddress import ip_address
from types import ModuleType


class AbsentModules(MetaPathFinder):
    """Finds that top-level modules of these names are not there."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def refuse_outbound(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook that raises where Python code is about to connect to another machine."""
    if event != "socket.connect":
        return
    address = arguments[1]
    if isinstance(address, tuple) and not ip_address(address[0]).is_loopback:
        raise PermissionError(f"an outbound connection to {address}")


if __name__ == "__main__":
    absent, module, *options = sys.argv[1:]
    sys.meta_path.insert(0, AbsentModules(absent.split(",")))
    sys.addaudithook(refuse_outbound)
    sys.argv = [module, *options]
    sys.path[0] = os.getcwd()
    runpy.run_module(module, run_name="__main__", alter_sys=True)
