"""The manifest: what an artefact is, and the contract between export and server.

Imports nothing but the standard library, so that the server can read it without torch. The file
`manifest.json` is the canonical JSON (sorted keys, UTF-8, no spaces) of the whole manifest; any
other spelling of the same content is refused. `digest` is the sha256 of the canonical JSON without
`digest` and `built_at`: it is the artefact's identity.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from mmap import ACCESS_READ, mmap
from pathlib import Path
from types import UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

FORMAT_VERSION = 2
MANIFEST_FILE = "manifest.json"
TOKENIZER_FILE = "tokenizer.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"
REFERENCE_FILE = "reference.npz"
PARITY_FILE = "parity.json"
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

FileContent = mmap | bytes

_FILE_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class ManifestError(ValueError):
    """An artefact that cannot be trusted; the message names the file and the reason."""


class Task(StrEnum):
    """What an artefact answers."""

    EMBED = "embed"
    GENERATE = "generate"


class Precision(StrEnum):
    """The dtype of the weights (and, for the fp types, of the arithmetic)."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    INT4 = "int4"
    INT8_DYNAMIC = "int8-dynamic"


class Device(StrEnum):
    """What an artefact was built for."""

    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a graph; a dynamic axis is its name."""

    name: str
    dtype: str  # as numpy spells it: int64, float32
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class GraphSpec:
    """One graph: its file, the files of its weights, and its interface."""

    file: str
    weights: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class Limits:
    """Lengths in tokens. `max_input` bounds one text or source; `max_positions` one cache slot."""

    max_input: int
    max_positions: int  # 0 for encoders; of the target for encoder-decoders


@dataclass(frozen=True)
class SpecialIds:
    """Ids with a meaning; `eos` are all the ids that end a completion."""

    pad: int | None = None
    bos: int | None = None
    eos: tuple[int, ...] = ()
    decoder_start: int | None = None


@dataclass(frozen=True)
class GenerationDefaults:
    """The checkpoint's own generation settings; None where it says nothing."""

    do_sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None


@dataclass(frozen=True)
class DecodingRules:
    """What the checkpoint demands of every completion, whatever is asked of it.

    `model.decoding_rules` has the same fields and says what they mean.
    """

    first_id: int | None = None  # right after a start token that stands alone
    last_id: int | None = None  # where no more tokens fit
    forbidden_ids: tuple[int, ...] = ()
    ngram_size: int = 0
    min_new_tokens: int = 0
    renormalised: bool = False


@dataclass(frozen=True)
class PoolingSpec:
    """How token states become one vector; both are done in the graph."""

    mode: str  # mean, cls, max
    normalize: bool
    dimensions: int


@dataclass(frozen=True)
class SourceSpec:
    """Where the weights came from: files by name, each with its sha256."""

    kind: str  # directory, gguf, hub, package
    id: str
    revision: str | None
    files: dict[str, str]


@dataclass(frozen=True)
class FileSpec:
    """Size in bytes and sha256 in hex of one file of the artefact."""

    size: int
    sha256: str


@dataclass(frozen=True)
class ParitySummary:
    """What the gate found: how many checks, and the worst difference with its bound.

    `accepted` describes what is beyond its bound and was said to be acceptable.
    """

    checks: int
    worst_difference: float
    tolerance: float
    accepted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """Everything that the server knows about an artefact; it never guesses from tensor names."""

    name: str
    kind: str  # encoder, decoder, encoder_decoder
    task: tuple[Task, ...]
    config: dict[str, Any]  # model.config.TransformerConfig.to_json()
    vocabulary_size: int  # of the logits, or of an encoder's input ids; sources: config.vocab_size
    graphs: dict[str, GraphSpec]  # by role: encoder, decoder, mover
    limits: Limits
    precision: Precision
    device: Device
    opset: int
    tools: dict[str, str]  # name -> version
    source: SourceSpec
    verified_on: tuple[Device, ...]
    parity: ParitySummary
    files: dict[str, FileSpec]  # every file but manifest.json
    special_ids: SpecialIds = SpecialIds()
    generation: GenerationDefaults = GenerationDefaults()
    decoding: DecodingRules = DecodingRules()
    pooling: PoolingSpec | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None  # a key of `prompts`
    chat_template: str | None = None
    chat_tokens: dict[str, str] = field(default_factory=dict)  # bos_token, eos_token, ...
    format_version: int = FORMAT_VERSION
    built_at: str = ""  # UTC, ISO 8601
    digest: str = ""  # sha256:<hex>

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise ManifestError(
                f"name is {self.name!r}; it must start with a letter or digit and hold at most "
                "64 of a-z 0-9 . _ -"
            )
        for file in (MANIFEST_FILE, *self.files):
            if not _FILE_PATTERN.fullmatch(file):
                raise ManifestError(f"file name {file!r} is not a plain name")
        listed = [name for graph in self.graphs.values() for name in (graph.file, *graph.weights)]
        if unlisted := sorted(set(listed) - set(self.files)):
            raise ManifestError(f"graphs name files that are not listed: {', '.join(unlisted)}")

    def sealed(self) -> Self:
        """The same manifest with its digest."""
        return replace(self, digest=self.compute_digest())

    def compute_digest(self) -> str:
        """`sha256:<hex>` over everything but `digest` and `built_at`."""
        values = asdict(self)
        del values["digest"], values["built_at"]
        return f"sha256:{hashlib.sha256(canonical_json(values)).hexdigest()}"

    def to_bytes(self) -> bytes:
        """The content of `manifest.json`."""
        return canonical_json(asdict(self))

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Reads `manifest.json`.

        Raises:
            ManifestError: not canonical, of another format version, incomplete, or its digest
                does not match its content.
        """
        try:
            values = json.loads(content)
        except ValueError as error:
            raise ManifestError(f"{MANIFEST_FILE} is not JSON: {error}") from None
        if not isinstance(values, dict):
            raise ManifestError(f"{MANIFEST_FILE} is not a JSON object")
        if (version := values.get("format_version")) != FORMAT_VERSION:
            raise ManifestError(
                f"{MANIFEST_FILE} has format version {version}; this program reads "
                f"{FORMAT_VERSION}: build the artefact again"
            )
        manifest: Self = _read(cls, values, MANIFEST_FILE)
        if manifest.to_bytes() != content:
            raise ManifestError(f"{MANIFEST_FILE} is not in canonical form")
        if manifest.compute_digest() != manifest.digest:
            raise ManifestError(f"{MANIFEST_FILE} does not match its own digest")
        return manifest


def load_manifest(directory: Path) -> Manifest:
    """Reads an artefact's manifest, without looking at its other files.

    Raises:
        ManifestError: there is none, or it cannot be trusted.
    """
    try:
        content = (directory / MANIFEST_FILE).read_bytes()
    except OSError as error:
        raise ManifestError(f"cannot read {MANIFEST_FILE}: {error.strerror}") from None
    return Manifest.from_bytes(content)


def verify_files(directory: Path, manifest: Manifest) -> None:
    """Compares size and sha256 of every listed file.

    Raises:
        ManifestError: naming each file that is missing, unreadable or different.
    """
    open_files(directory, manifest)


def open_files(directory: Path, manifest: Manifest) -> dict[str, FileContent]:
    """The content of every listed file, mapped read-only.

    Each is opened once, so what was compared is what is read, wherever a link leads later.

    Raises:
        ManifestError: as `verify_files`.
    """
    contents, problems = {}, []
    for name, spec in sorted(manifest.files.items()):
        try:
            contents[name] = _open_file(directory / name, spec)
        except (FileNotFoundError, IsADirectoryError):
            problems.append(f"{name} is missing or not a regular file")
        except OSError as error:
            problems.append(f"{name} cannot be read: {error.strerror}")
        except ManifestError as error:
            problems.append(f"{name} {error}")
    if problems:
        raise ManifestError("; ".join(problems))
    return contents


def describe_file(path: Path) -> FileSpec:
    """Size and sha256 of a file."""
    return FileSpec(size=path.stat().st_size, sha256=_sha256(path))


def canonical_json(values: Any) -> bytes:
    """Sorted keys, UTF-8, no spaces."""
    text = json.dumps(
        values, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return text.encode()


@dataclass(frozen=True)
class SessionSettings:
    """How ONNX Runtime opens a graph: the same for the parity gate and the server."""

    config_entries: dict[str, str]
    enable_mem_pattern: bool
    enable_cpu_mem_arena: bool
    graph_optimization_level: str  # name of an onnxruntime.GraphOptimizationLevel
    provider: str
    provider_options: dict[str, str]


def session_settings(device: Device, device_index: int = 0) -> SessionSettings:
    """The settings for a device; the provider options of CUDA are explained in docs/."""
    if device is Device.CPU:
        return SessionSettings(
            # Threads spin while a run lasts, which spares a step hundreds of wake-ups, and sleep
            # between runs, when the event loop and other models want the processors. Processors
            # without VNNI add int8 products in 16 bits, which overflow, unless told not to.
            config_entries={
                "session.intra_op.allow_spinning": "1",
                "session.force_spinning_stop": "1",
                "session.x64quantprecision": "1",
            },
            enable_mem_pattern=False,
            enable_cpu_mem_arena=True,
            graph_optimization_level="ORT_ENABLE_ALL",
            provider="CPUExecutionProvider",
            provider_options={},
        )
    return SessionSettings(
        config_entries={
            "session.use_device_allocator_for_initializers": "1",
            "session.record_ep_graph_assignment_info": "1",
        },
        enable_mem_pattern=False,
        enable_cpu_mem_arena=True,
        graph_optimization_level="ORT_ENABLE_ALL",
        provider="CUDAExecutionProvider",
        provider_options={
            "device_id": str(device_index),
            "arena_extend_strategy": "kSameAsRequested",
            "sdpa_kernel": "3",
            "enable_cudnn": "0",
            "use_tf32": "0",
        },
    )


def _open_file(path: Path, spec: FileSpec) -> FileContent:
    # Without blocking: opening a named pipe would wait for whoever writes to it.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ManifestError("is missing or not a regular file")
        if status.st_size != spec.size:
            raise ManifestError(f"has {status.st_size} bytes instead of {spec.size}")
        if hashlib.file_digest(file, "sha256").hexdigest() != spec.sha256:
            raise ManifestError("does not match its sha256")
        return mmap(file.fileno(), 0, access=ACCESS_READ) if spec.size else b""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(wanted: Any, value: Any, where: str) -> Any:
    """Reads JSON values as the type `wanted`, naming the place of the first that does not fit."""
    if is_dataclass(wanted):
        return _read_dataclass(wanted, value, where)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType):
        return _read_union(arguments, value, where)
    if origin is tuple:
        items = _expect(list, value, where)
        return tuple(_read(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(items))
    if origin is dict:
        mapping = _expect(dict, value, where)
        return {key: _read(arguments[1], item, f"{where}.{key}") for key, item in mapping.items()}
    if wanted is Any:
        return value
    if issubclass(wanted, StrEnum):
        if value not in list(wanted):
            raise ManifestError(f"{where} is {value!r}; it must be one of {', '.join(wanted)}")
        return wanted(value)
    return _expect(wanted, value, where)


def _read_dataclass(wanted: Any, value: Any, where: str) -> Any:
    values = _expect(dict, value, where)
    hints = get_type_hints(wanted)
    names = [item.name for item in fields(wanted)]
    if unknown := sorted(set(values) - set(names)):
        raise ManifestError(f"{where} has unknown fields: {', '.join(unknown)}")
    if missing := sorted(set(names) - set(values)):
        raise ManifestError(f"{where} lacks {', '.join(missing)}")
    return wanted(**{name: _read(hints[name], values[name], f"{where}.{name}") for name in names})


def _read_union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    for argument in arguments:
        if argument is type(None):
            if value is None:
                return None
            continue
        try:
            return _read(argument, value, where)
        except ManifestError as error:
            problem = error
    raise problem


def _expect(wanted: type, value: Any, where: str) -> Any:
    right = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    if not right:
        raise ManifestError(f"{where} is {value!r}; it must be of type {wanted.__name__}")
    return value
