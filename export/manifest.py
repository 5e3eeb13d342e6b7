"""The manifest: what an artefact is, and the contract between export and server.

Imports nothing beyond the standard library, so that the server can read it without torch. The file
`manifest.json` is the canonical JSON (sorted keys, UTF-8, no spaces) of the whole manifest; any
other spelling of the same content is refused. `digest` is the sha256 of the canonical JSON without
`digest` and `built_at`: it is the artefact's identity.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from export.typed_json import MistypedJson, canonical_json, read_as

FORMAT_VERSION = 2
MANIFEST_FILE = "manifest.json"
TOKENIZER_FILE = "tokenizer.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"
REFERENCE_FILE = "reference.npz"
PARITY_FILE = "parity.json"
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

_UNBOUNDED = ("none", "relative")  # positions that no table of the model has to hold
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
    length_penalty: float | None = None  # of a beam search


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

    def contradictions(self) -> Iterator[str]:
        """What it says of the model that the model's own configuration denies."""
        if self.config.get("target_vocab_size") and TARGET_TOKENIZER_FILE not in self.files:
            yield f"{TARGET_TOKENIZER_FILE} is not listed, but targets have their own vocabulary"
        if self.config.get("positions") in _UNBOUNDED:
            return
        most = self.config.get("max_positions")
        for name, length in asdict(self.limits).items():
            if not isinstance(most, int) or length > most:
                yield f"limits.{name} is {length}; config.max_positions is {most}"

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
        try:
            manifest: Self = read_as(cls, values, MANIFEST_FILE)
        except MistypedJson as error:
            raise ManifestError(str(error)) from None
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
