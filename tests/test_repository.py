"""What holds for the repository as a whole: generated files, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("model", "export", "server", "client")


def test_stubs_are_what_the_protos_generate() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "protos" / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("package", ["server", "client"])
def test_serving_and_calling_never_load_torch(package: str) -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name not in ("__main__.py", "__init__.py")
    ]
    assert modules
    heavy = "{'torch', 'transformers', 'onnx', 'onnxscript', 'sentence_transformers'}"
    program = (
        f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_imported_by_their_modules(package: str) -> None:
    """`import model` would find whatever else is called that; `from model.x import y` cannot."""
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not set(names) & set(PACKAGES), f"{path.name}:{node}"


def test_no_module_hides_a_standard_one() -> None:
    for package in PACKAGES:
        names = {path.stem for path in (ROOT / package).glob("*.py")}
        assert not names & {"logging", "types", "typing", "json", "random", "queue", "threading"}
