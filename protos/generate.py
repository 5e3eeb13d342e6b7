"""Generates the stubs beside the .proto files; `--check` compares them byte for byte instead."""

from __future__ import annotations

import argparse
import sys
import sysconfig
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
STUBS = ("*_pb2.py", "*_pb2_grpc.py", "*_pb2.pyi", "*_pb2_grpc.pyi")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a stub is not up to date")
    if not parser.parse_args().check:
        generate(PROTOS)
        return 0
    stale = stale_stubs()
    for stub in stale:
        print(f"{stub} is not what its .proto generates: run `make protos`", file=sys.stderr)
    return 1 if stale else 0


def generate(output: Path) -> None:
    """Writes every stub below `output`.

    Raises:
        RuntimeError: protoc refused a file; it has printed why.
    """
    sources = [str(path.relative_to(PROTOS)) for path in sorted(PROTOS.rglob("*.proto"))]
    arguments = [
        "protoc",
        f"--plugin=protoc-gen-mypy_grpc={sysconfig.get_path('scripts')}/protoc-gen-mypy_grpc",
        f"-I{PROTOS}",
        f"-I{ROOT / 'third_party'}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={output}",
        f"--pyi_out={output}",
        f"--grpc_python_out={output}",
        f"--mypy_grpc_out=quiet:{output}",
        *sources,
    ]
    if protoc.main(arguments):
        raise RuntimeError("protoc failed")


def stale_stubs() -> list[str]:
    """The stubs that differ from what protoc generates now, or are missing or left over."""
    with tempfile.TemporaryDirectory() as directory:
        fresh_root = Path(directory)
        generate(fresh_root)
        fresh, present = _stubs(fresh_root), _stubs(PROTOS)
    return sorted(name for name in fresh | present if fresh.get(name) != present.get(name))


def _stubs(root: Path) -> dict[str, bytes]:
    paths = [path for pattern in STUBS for path in root.rglob(pattern)]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


if __name__ == "__main__":
    sys.exit(main())
