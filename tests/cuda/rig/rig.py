"""ONNX Runtime's GPU wheel on a machine without a GPU: built here, by gcc, for one interpreter.

The wheel and NVIDIA's libraries are the real ones, but for the CUDA runtime and driver: see
runtime.c for what that leaves true.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]
_RUNTIME = re.compile(r"(cuda[A-Z]|cublas)\w+")
_DRIVER = re.compile(r"cu[A-Z]\w+")
_DRIVER_LIBRARY = "libcuda.so.1"
_COMPILE = ("gcc", "-w", "-O1", "-fPIC")


@dataclass(frozen=True)
class Rig:
    """An interpreter with the wheel, and the libraries that stand for a GPU.

    Attributes:
        python: has onnxruntime-gpu, its NVIDIA wheels and what the server needs.
        libraries: a directory with runtime.so and libcuda.so.1.
    """

    python: Path
    libraries: Path

    def run(
        self,
        *arguments: str,
        trace: Path | None = None,
        driver: bool = True,
        devices: int = 1,
    ) -> subprocess.CompletedProcess[str]:
        """Runs the interpreter from the repository's root until it ends.

        Args:
            trace: where the stand-in writes what is asked of it.
            driver: whether there is one; without it nothing stands for a GPU.
            devices: how many there are behind the driver.
        """
        environment = dict(os.environ) | {"RIG_DEVICES": str(devices)}
        if driver:
            environment["LD_LIBRARY_PATH"] = str(self.libraries)
            environment["LD_PRELOAD"] = str(self.libraries / "runtime.so")
        if trace is not None:
            environment["RIG_TRACE"] = str(trace)
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=_ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
        )


def build_rig(python: Path, libraries: Path) -> Rig:
    """Compiles the stand-ins for the wheel that an interpreter has.

    Raises:
        CalledProcessError: the interpreter has no such wheel, or gcc failed.
    """
    libraries.mkdir(parents=True, exist_ok=True)
    packages = Path(
        _output(str(python), "-c", "import sysconfig as s; print(s.get_path('purelib'))")
    )
    provider = packages / "onnxruntime" / "capi" / "libonnxruntime_providers_cuda.so"
    wanted = _symbols("--undefined-only", provider)
    headers = (f"-I{_HERE}", f"-I{packages / 'nvidia' / 'cu13' / 'include'}")
    names = {name for name in wanted if _RUNTIME.fullmatch(name)}
    _compile(libraries / "runtime.so", "runtime.c", names, *headers)
    names = {name for name in wanted if _DRIVER.fullmatch(name)}
    _compile(libraries / _DRIVER_LIBRARY, "driver.c", names, f"-Wl,-soname,{_DRIVER_LIBRARY}")
    return Rig(python, libraries)


def _compile(library: Path, source: str, names: set[str], *options: str) -> None:
    """Compiles a source, and a function that does nothing for each name that it does not define."""
    written, stubs = library.with_suffix(".o"), library.with_suffix(".stubs.c")
    _output(*_COMPILE, *options, "-c", "-o", str(written), str(_HERE / source))
    missing = sorted(names - _symbols("--defined-only", written))
    stubs.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in missing))
    _output(*_COMPILE, *options, "-shared", "-o", str(library), str(written), str(stubs))


def _symbols(which: str, library: Path) -> set[str]:
    """The names that a library wants or has, their versions cut off."""
    options = (
        ("--format=posix", which) if library.suffix == ".o" else ("--format=posix", "-D", which)
    )
    lines = _output("nm", *options, str(library)).splitlines()
    return {line.split()[0].partition("@")[0] for line in lines}


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
