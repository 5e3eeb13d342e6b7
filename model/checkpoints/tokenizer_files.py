"""The tokenizers of a checkpoint, as tokenizer.json and target_tokenizer.json."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

from tokenizers import Tokenizer

from model.checkpoint import Checkpoint, CheckpointError
from model.checkpoints.files import read_json, read_optional_json
from model.checkpoints.marian_tokenizer import SOURCE_PIECES, read_marian_tokenizers

TOKENIZER_FILE = "tokenizer.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"

# Files of older tokenizers, of which transformers makes a tokenizer.json; each set on its own.
_SENTENCE_PIECES = ("tokenizer.model", "sentencepiece.bpe.model", "spiece.model")
_OLDER = (*((name,) for name in _SENTENCE_PIECES), ("vocab.json", "merges.txt"), ("vocab.txt",))
_CONVERSION = (
    "write it where transformers can read the tokenizer: "
    "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
)


def read_tokenizer(
    directory: Path, name: str = TOKENIZER_FILE, *, lowercase: bool = False
) -> bytes:
    """The content of a tokenizer's file, its padding and truncation switched off.

    Where there is no tokenizer.json, transformers makes one of older files.

    Args:
        lowercase: whether text is to be lowercased before anything else.

    Raises:
        CheckpointError: there are no such files, they hold no tokenizer, or a package that reads
            them is missing.
    """
    path = directory / name
    text = json.dumps(read_json(path)) if path.exists() else _convert(directory, name)
    try:
        return without_padding(_lowercased(text) if lowercase else text)
    except Exception as error:  # tokenizers raises no narrower type
        raise CheckpointError(f"{path} holds no tokenizer: {error}") from None


def read_tokenizers(directory: Path) -> tuple[bytes, bytes | None]:
    """The contents of the source's file and of the target's, None where one serves both.

    Raises:
        CheckpointError: as `read_tokenizer`.
    """
    if not (directory / TOKENIZER_FILE).exists() and (directory / SOURCE_PIECES).exists():
        return read_marian_tokenizers(directory)
    if not (directory / TARGET_TOKENIZER_FILE).exists():
        return read_tokenizer(directory), None
    return read_tokenizer(directory), read_tokenizer(directory, TARGET_TOKENIZER_FILE)


def without_padding(text: str) -> bytes:
    """A tokenizer's JSON with padding and truncation switched off.

    Both depend on the call, not on the model: formerd cuts ids itself and never pads text.
    """
    tokenizer = Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer.to_str().encode()


def check_vocabularies(checkpoint: Checkpoint) -> None:
    """A model has a row for each id that its tokenizer can give, for source and target.

    Raises:
        CheckpointError: naming the token and the size of the vocabulary, or the tokenizer that is
            missing.
    """
    if checkpoint.config.target_vocab_size and checkpoint.target_tokenizer_json is None:
        raise CheckpointError(
            f"the target has a vocabulary of its own, of {checkpoint.config.target_vocab_size} "
            f"entries, but there is no {TARGET_TOKENIZER_FILE}"
        )
    sizes = [(checkpoint.tokenizer_json, checkpoint.config.vocab_size)]
    if checkpoint.target_tokenizer_json is not None:
        sizes.append((checkpoint.target_tokenizer_json, checkpoint.config.decoder_vocab_size))
    for content, size in sizes:
        vocabulary = Tokenizer.from_buffer(content).get_vocab()
        token, largest = max(vocabulary.items(), key=lambda item: item[1], default=("", -1))
        if largest >= size:
            raise CheckpointError(
                f"the tokenizer gives {token!r} the id {largest}, but the model's vocabulary has "
                f"{size} entries: they belong to different models"
            )


def _convert(directory: Path, name: str) -> str:
    """The tokenizer that transformers makes of what is there."""
    found = next((files for files in _OLDER if all((directory / f).exists() for f in files)), None)
    if found is None or name != TOKENIZER_FILE:
        raise CheckpointError(f"{directory.name} has no {name}; {_CONVERSION}")
    where = f"{directory.name} has no {name}, and {' and '.join(found)}"
    if found[0] in _SENTENCE_PIECES and find_spec("sentencepiece") is None:
        raise CheckpointError(
            f"{where} cannot be read without the package sentencepiece: pip install sentencepiece"
        )
    if "auto_map" in read_optional_json(directory / "tokenizer_config.json"):
        raise CheckpointError(f"{where} would be read by custom code (auto_map), never run")

    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
        text: str = tokenizer.backend_tokenizer.to_str()
    except Exception as error:  # transformers raises what it comes across
        raise CheckpointError(f"{where} cannot be converted: {error}; {_CONVERSION}") from None
    return text


def _lowercased(text: str) -> str:
    values = json.loads(text)
    steps = [step for step in ({"type": "Lowercase"}, values.get("normalizer")) if step]
    values["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return json.dumps(values)
