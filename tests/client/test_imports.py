from __future__ import annotations

import ast
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[2] / "client"
COMMAND_LINE = {"__main__.py", "terminal.py"}
STUBS = {"formerd", "google", "grpc_health"}


def test_the_library_needs_grpc_its_status_and_the_stubs_only() -> None:
    allowed = sys.stdlib_module_names | STUBS | {"client", "grpc", "grpc_status"}
    files = [path for path in CLIENT.glob("*.py") if path.name not in COMMAND_LINE]
    assert files
    for path in files:
        assert _imported(path) <= allowed, path.name


def _imported(path: Path) -> set[str]:
    """The top-level packages that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    return names
