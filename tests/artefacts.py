"""Tiny artefacts made by the real build, gate included, and how to tamper with them.

Each kind is built once and kept under build/ for as long as the code that builds it stays the same;
what other code built is removed after a day, when no test can still be using it. Tests that change
an artefact change a copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from export.artefact import Artefact
from export.artefact_files import describe_file
from export.build import build
from export.build_options import BuildOptions
from export.gate import check_artefact
from export.manifest import MANIFEST_FILE, Manifest, Precision, load_manifest
from export.progress import SilentSteps
from export.source import resolve_source
from tests.checkpoints import (
    END_ID,
    write_decoder,
    write_encoder,
    write_encoder_decoder,
    write_learned_decoder,
    write_relative_encoder_decoder,
    write_scripted_decoder,
    write_two_vocabularies,
)

_ROOT = Path(__file__).parent.parent
_HOMES = _ROOT / "build" / "artefacts"
_DAY_SECONDS = 24 * 3600
SCRIPT_POSITIONS = 256


def encoder_artefact() -> Path:
    """`tiny-encoder`: an encoder like BERT, mean pooling, unit length."""
    return built_once("tiny-encoder", write_encoder)


def decoder_artefact() -> Path:
    """`tiny-decoder`: a decoder like Llama with a chat template."""
    return built_once("tiny-decoder", write_decoder)


def standard_decoder_artefact() -> Path:
    """`tiny-standard-decoder`: `tiny-decoder` in operators of the ONNX standard alone."""
    return built_once("tiny-standard-decoder", write_decoder, standard_ops=True)


def quantised_encoder_artefact(precision: Precision) -> Path:
    """`tiny-encoder` in another precision, as `tiny-encoder-int8`."""
    return built_once(f"tiny-encoder-{precision}", write_encoder, precision=precision)


def quantised_decoder_artefact(precision: Precision) -> Path:
    """`tiny-decoder` in another precision, as `tiny-decoder-int8`."""
    return built_once(f"tiny-decoder-{precision}", write_decoder, precision=precision)


def learned_decoder_artefact() -> Path:
    """`tiny-learned-decoder`: the G of the case list, 1 024 learned positions."""
    return built_once("tiny-learned-decoder", write_learned_decoder)


def encoder_decoder_artefact() -> Path:
    """`tiny-encoder-decoder`: the S of the case list, one vocabulary."""
    return built_once("tiny-encoder-decoder", write_encoder_decoder)


def relative_artefact() -> Path:
    """`tiny-relative`: an encoder-decoder like T5, with a bias of distances."""
    return built_once("tiny-relative", write_relative_encoder_decoder)


def two_vocabularies_artefact() -> Path:
    """`tiny-two-vocabularies`: an encoder-decoder like Marian's, with rules for its targets."""
    return built_once("tiny-two-vocabularies", write_two_vocabularies)


def quantised_encoder_decoder_artefact(precision: Precision) -> Path:
    """`tiny-encoder-decoder` in another precision, as `tiny-encoder-decoder-int8`."""
    return built_once(
        f"tiny-encoder-decoder-{precision}", write_encoder_decoder, precision=precision
    )


def scripted_artefact(directory: Path, script: Sequence[int]) -> Path:
    """`scripted`: the X of the case list, written to `directory`.

    A prompt of n tokens is continued with `script[n - 1:]`, then with `END`, whatever it says.
    The graph is built once; the script is planted in its output head.
    """
    blank = built_once("scripted", _write_blank)
    shutil.copytree(blank, directory)
    head = np.zeros_like(read_weight(directory, "decoder.head.weight"))  # [d_model, vocab]
    said = [*script, *[END_ID] * (SCRIPT_POSITIONS - len(script))]
    head[range(SCRIPT_POSITIONS), said] = 1.0
    write_weight(directory, "decoder.head.weight", head)
    reseal(directory)
    return directory


@cache
def built_once(name: str, write: Callable[[Path], Path], **options: Any) -> Path:
    """An artefact of a checkpoint that `write` writes to the directory that it is given.

    `options` go to `BuildOptions`.
    """
    home = artefact_home()
    artefact = home / name
    with (home / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes run side by side
        if not artefact.exists():
            source = resolve_source(str(write(home / f"{name}-checkpoint")))
            wanted = BuildOptions(artefact, name, **options)
            build(source, wanted, SilentSteps(), gate=check_artefact)
    return artefact


@cache
def artefact_home() -> Path:
    """The directory of the artefacts that this very code has built."""
    _remove_stale_homes()
    home = _HOMES / _FINGERPRINT
    home.mkdir(parents=True, exist_ok=True)
    os.utime(home)  # in use
    return home


def read_weight(directory: Path, name: str, role: str = "*") -> NDArray[Any]:
    """A copy of an initializer of an artefact's graph, in the layout of the graph.

    `role` says which, where there is more than one with weights.
    """
    return _external(directory, name, role).numpy().copy()


def write_weight(directory: Path, name: str, values: NDArray[Any], role: str = "*") -> None:
    """Overwrites an initializer; the manifest does not know until `reseal`."""
    tensor = _external(directory, name, role)
    with Path(tensor.path).open("r+b") as file:
        file.seek(tensor.offset or 0)
        file.write(values.astype(tensor.dtype.numpy()).tobytes())


def unverified(directory: Path) -> Artefact:
    """An artefact as it is, its digests not compared."""
    manifest = load_manifest(directory)
    return Artefact(manifest, {name: (directory / name).read_bytes() for name in manifest.files})


def weight_names(directory: Path, role: str = "*") -> list[str]:
    """The initializers of an artefact's graph that lie in external data."""
    return [
        name
        for name, value in ir.load(graph_file(directory, role)).graph.initializers.items()
        if isinstance(value.const_value, ir.ExternalTensor)
    ]


def move_weights(directory: Path, location: str, role: str = "*") -> None:
    """Makes an artefact's graph say that its weights lie at `location`."""
    graph = graph_file(directory, role)
    proto = onnx.load(graph, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    onnx.save(proto, graph)


def reseal(directory: Path, change: Callable[[Manifest], Manifest] = lambda same: same) -> Manifest:
    """Rewrites the manifest, digests included, to fit the files as they are."""
    manifest = Manifest.from_bytes((directory / MANIFEST_FILE).read_bytes())
    files = {
        path.name: describe_file(path)
        for path in sorted(directory.iterdir())
        if path.name != MANIFEST_FILE
    }
    manifest = change(replace(manifest, files=files)).sealed()
    (directory / MANIFEST_FILE).write_bytes(manifest.to_bytes())
    return manifest


def _write_blank(directory: Path) -> Path:
    return write_scripted_decoder(directory, [], SCRIPT_POSITIONS)


def graph_file(directory: Path, role: str = "*") -> Path:
    """The file of a graph with weights; there must be one alone where no role is named."""
    (path,) = (path for path in directory.glob(f"{role}.onnx") if path.stem != "mover")
    return path


def _external(directory: Path, name: str, role: str) -> ir.ExternalTensor:
    tensor = ir.load(graph_file(directory, role)).graph.initializers[name].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    return tensor


def _fingerprint() -> str:
    """Changes with the code and the libraries that make artefacts."""
    digest = hashlib.sha256()
    for package in ("torch", "onnx-ir", "onnxscript", "onnxruntime"):
        digest.update(version(package).encode())
    code = sorted([*_ROOT.glob("model/**/*.py"), *_ROOT.glob("export/*.py")])
    for path in (*code, Path(__file__).with_name("checkpoints.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _remove_stale_homes() -> None:
    """Another process may run code that was changed since; it has finished within a day."""
    for home in _HOMES.glob("*"):
        with contextlib.suppress(OSError):  # somebody else removes it
            if home.stat().st_mtime < time.time() - _DAY_SECONDS:
                shutil.rmtree(home)


# Taken while the code is imported: what is edited later is not what this process builds with.
_FINGERPRINT = _fingerprint()
