"""An artefact, read and verified before anything of it is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from export.artefact_files import FileContent, open_files
from export.manifest import (
    MANIFEST_FILE,
    TOKENIZER_FILE,
    GraphSpec,
    Manifest,
    ManifestError,
    TensorSpec,
    load_manifest,
)
from server.interface import expected_graphs, source_vocabulary_size


class ArtefactError(Exception):
    """An artefact that is not served; one line that names the file and the reason."""


@dataclass(frozen=True)
class Artefact:
    """A verified artefact: its manifest and the content of its files, as it was verified."""

    directory: Path
    manifest: Manifest
    files: dict[str, FileContent]

    @property
    def tokenizer(self) -> bytes:
        """The content of tokenizer.json."""
        return self.files[TOKENIZER_FILE][:]


def load_artefact(directory: Path, expect_digest: str | None = None) -> Artefact:
    """Reads an artefact after comparing its digest and every file's with what they should be.

    Args:
        directory: where the artefact is.
        expect_digest: `sha256:<hex>`, where the operator pins it.

    Raises:
        ArtefactError: a file is missing or altered, the digest is another, a graph's declared
            interface is not the one that this server binds, an id is none of the vocabulary, or the
            manifest contradicts itself.
    """
    try:
        manifest = load_manifest(directory)
        if expect_digest is not None and manifest.digest != expect_digest:
            raise ManifestError(
                f"{MANIFEST_FILE} has digest {manifest.digest}, but {expect_digest} is expected"
            )
        files = open_files(directory, manifest)
        _check_interface(manifest)
        _check_ids(manifest)
    except ManifestError as error:
        raise ArtefactError(f"{directory}: {error}") from None
    return Artefact(directory, manifest, files)


def _check_interface(manifest: Manifest) -> None:
    if TOKENIZER_FILE not in manifest.files:
        raise ManifestError(f"{MANIFEST_FILE} lists no {TOKENIZER_FILE}")
    for problem in manifest.contradictions():
        raise ManifestError(f"{MANIFEST_FILE}: {problem}")
    expected = expected_graphs(manifest)
    if set(manifest.graphs) != set(expected):
        raise ManifestError(
            f"{MANIFEST_FILE} has graphs {', '.join(sorted(manifest.graphs)) or 'none'}; kind "
            f"{manifest.kind} needs {', '.join(sorted(expected))}"
        )
    for role, graph in expected.items():
        for problem in _differences(graph, manifest.graphs[role]):
            raise ManifestError(f"{manifest.graphs[role].file} {problem}")


def _check_ids(manifest: Manifest) -> None:
    """Refuses ids that cannot be computed with, and targets that begin with nothing."""
    start, rules = manifest.special_ids.decoder_start, manifest.decoding
    if (start is not None) != (manifest.kind == "encoder_decoder"):
        raise ManifestError(
            f"special_ids.decoder_start is {start}; kind encoder_decoder needs one, and no other "
            "kind has one"
        )
    source_vocabulary_size(manifest)
    for name, ids in (
        ("special_ids.decoder_start", (start,)),
        ("decoding.first_id", (rules.first_id,)),
        ("decoding.last_id", (rules.last_id,)),
        ("decoding.forbidden_ids", rules.forbidden_ids),
    ):
        for each in ids:
            if each is not None and not 0 <= each < manifest.vocabulary_size:
                raise ManifestError(
                    f"{name} is {each}; the vocabulary ends at {manifest.vocabulary_size - 1}"
                )


def _differences(expected: GraphSpec, declared: GraphSpec) -> Iterator[str]:
    for kind, wanted, given in (
        ("input", expected.inputs, declared.inputs),
        ("output", expected.outputs, declared.outputs),
    ):
        names = {spec.name: spec for spec in given}
        if unknown := sorted(set(names) - {spec.name for spec in wanted}):
            yield f"declares {kind}s that this server does not know: {', '.join(unknown)}"
        for spec in wanted:
            if spec.name not in names:
                yield f"declares no {kind} {spec.name}"
            elif not _same(spec, names[spec.name]):
                found = names[spec.name]
                yield (
                    f"declares {kind} {spec.name} as {found.dtype}{list(found.shape)} instead of "
                    f"{spec.dtype}{list(spec.shape)}"
                )


def _same(wanted: TensorSpec, given: TensorSpec) -> bool:
    """Whether dtype and sizes agree; a dynamic axis may have any name."""
    return wanted.dtype == given.dtype and _sizes(wanted) == _sizes(given)


def _sizes(spec: TensorSpec) -> list[int | None]:
    return [size if isinstance(size, int) else None for size in spec.shape]
