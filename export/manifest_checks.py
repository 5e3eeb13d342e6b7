"""The manifest and the tokenizer against the checkpoint that they were made from."""

from __future__ import annotations

from collections.abc import Iterator

from export.artefact import Artefact
from export.draft import draft_manifest
from export.manifest import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, Manifest
from export.parity import Check
from export.recipe import recipe_of
from model.checkpoint import Checkpoint
from model.config import Kind

# What the checkpoint alone decides. The pooling may be the user's choice, and numbers show it; so
# may the limits, within the model's own.
_FIELDS = (
    "kind",
    "task",
    "config",
    "vocabulary_size",
    "special_ids",
    "generation",
    "decoding",
    "prompts",
    "default_prompt",
    "chat_template",
    "chat_tokens",
)


def check_manifest(checkpoint: Checkpoint, artefact: Artefact) -> Iterator[Check]:
    """Every field that the checkpoint decides, and the tokenizers byte for byte."""
    manifest = artefact.manifest
    draft = draft_manifest(
        checkpoint,
        name=manifest.name,
        recipe=recipe_of(manifest),
        source=manifest.source,
        graphs=manifest.graphs,
        files=manifest.files,
        tolerance=manifest.parity.tolerance,
        max_length=None,
    )
    for name in _FIELDS:
        found, wanted = getattr(manifest, name), getattr(draft, name)
        yield _equal(f"manifest {name}", found == wanted, f"{found!r} instead of {wanted!r}")
    yield _equal("manifest limits", _within(manifest, checkpoint), f"{manifest.limits!r}")
    if manifest.pooling is not None:
        found, wanted = manifest.pooling.dimensions, checkpoint.config.d_model
        yield _equal("manifest pooling", found == wanted, f"{found} dimensions, not {wanted}")
    for file, wanted_tokenizer in (
        (TOKENIZER_FILE, checkpoint.tokenizer_json),
        (TARGET_TOKENIZER_FILE, checkpoint.target_tokenizer_json),
    ):
        content = artefact.files.get(file)
        same = (None if content is None else content[:]) == wanted_tokenizer
        yield _equal(file, same, "differs from the checkpoint's")


def _within(manifest: Manifest, checkpoint: Checkpoint) -> bool:
    limits, config = manifest.limits, checkpoint.config
    positions = limits.max_positions if config.has_decoder else config.max_positions
    longest = config.max_positions if config.kind is Kind.ENCODER_DECODER else positions
    return 0 < limits.max_input <= longest and 0 < positions <= config.max_positions


def _equal(shape: str, same: bool, note: str) -> Check:
    return Check("content", shape, 0.0 if same else None, 0.0, "" if same else note)
