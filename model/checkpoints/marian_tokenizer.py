"""Marian's tokenizers: sentencepiece models with the ids of a vocabulary of their own.

vocab.json            token -> id, of both languages or of the source alone
target_vocab.json     of the target, where tokenizer_config.json says `separate_vocabs`
source.spm            how the source is cut into pieces, with their scores
target.spm            the same for the target

transformers looks each piece up in the vocabulary. Here that is one Unigram model in the order of
the vocabulary with the scores of the pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from model.checkpoint import CheckpointError
from model.checkpoints.files import read_json, read_optional_json

SOURCE_PIECES, TARGET_PIECES = "source.spm", "target.spm"
_VOCABULARY, _TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
_UNKNOWN, _END, _PAD = "<unk>", "</s>", "<pad>"
_SPACE = "▁"
_LANGUAGE = re.compile(r">>[^<>\s]+<<")  # `>>fra<<` before a source asks for French

_NORMAL, _UNUSED = 1, 5  # types of pieces that text can, and cannot, be cut into
_CONTROL = (2, 3)  # <unk>; <s> and </s>
_UNIGRAM = 1  # type of model

# A noncharacter, which no text and no piece has: stands for characters that are in no piece.
_STRANGE = "\uffff"
# Of a piece of the other language, below any sum of scores in a word: it stands only for characters
# that are in no piece of this one.
_LAST_RESORT = -1e5


def read_marian_tokenizers(directory: Path) -> tuple[bytes, bytes]:
    """What would be tokenizer.json and target_tokenizer.json of a directory.

    Raises:
        CheckpointError: a file is missing or damaged, or is of a kind that cannot be converted.
    """
    settings = read_optional_json(directory / "tokenizer_config.json")
    vocabulary = _read_vocabulary(directory / _VOCABULARY)
    separate = settings.get("separate_vocabs", False)
    target = _read_vocabulary(directory / _TARGET_VOCABULARY) if separate else vocabulary
    return (
        _tokenizer(vocabulary, _read_pieces(directory / SOURCE_PIECES)),
        _tokenizer(target, _read_pieces(directory / TARGET_PIECES)),
    )


def _tokenizer(vocabulary: list[str], pieces: Any) -> bytes:
    scores = {piece.piece: piece.score for piece in pieces.pieces if piece.type == _NORMAL}
    known = {_SPACE, *(character for piece in scores for character in piece)}
    unknown = f"[^{_escaped(sorted(known))}]"
    special = [token for token in vocabulary if _is_special(token)]
    foreign = {token for token in vocabulary if known.isdisjoint(token)}.difference(special)
    entries = [(token, scores.get(token, _LAST_RESORT)) for token in vocabulary]
    tokenizer = Tokenizer(models.Unigram(entries, vocabulary.index(_UNKNOWN), byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [*_text_steps(pieces), normalizers.Replace(Regex(_run(unknown, foreign)), _STRANGE)]
    )
    # No piece spans the border between characters that are known and that are not.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(f"{unknown}+"), "isolated")
    tokenizer.decoder = decoders.Metaspace(_SPACE, "always", split=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {_END}", special_tokens=[(_END, vocabulary.index(_END))]
    )
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in special]
    )
    return tokenizer.to_str().encode()


def _is_special(token: str) -> bool:
    return token in (_UNKNOWN, _END, _PAD) or _LANGUAGE.fullmatch(token) is not None


def _text_steps(pieces: Any) -> list[normalizers.Normalizer]:
    """What sentencepiece does to a text before it looks for pieces."""
    steps: list[normalizers.Normalizer] = []
    if charsmap := pieces.normalizer_spec.precompiled_charsmap:
        # The library maps characters one by one, but for short sequences, where sentencepiece takes
        # the longest match: composing before and after makes up for it. What remains: of a mark
        # that composes with nothing, after a character that is mapped, the library may lose sight.
        composed = [normalizers.NFC()] if "nfkc" in pieces.normalizer_spec.name else []
        steps += [*composed, normalizers.Precompiled(charsmap), *composed]
    return [
        *steps,
        normalizers.Replace(Regex(rf"\A +|[ {_SPACE}]+\z"), ""),
        normalizers.Replace(Regex(" {2,}"), " "),
        normalizers.Replace(" ", _SPACE),
        normalizers.Prepend(_SPACE),
    ]


def _run(unknown: str, foreign: Iterable[str]) -> str:
    """A pattern of several unknown characters in a row that are not `foreign` as a whole.

    To sentencepiece they are one piece, which transformers looks up: it is the unknown token, or
    one of the other language. The model would look for parts of it.
    """
    whole = "|".join(map(_escaped, sorted(token for token in foreign if len(token) > 1)))
    exception = f"(?!(?:{whole})(?!{unknown}))" if whole else ""
    return f"(?={unknown}{{2}})(?<!{unknown}){exception}{unknown}{{2,}}"


def _escaped(characters: Iterable[str]) -> str:
    return "".join(f"\\x{{{ord(character):x}}}" for character in characters)


def _read_vocabulary(path: Path) -> list[str]:
    """The tokens in the order of their ids."""
    ids = read_json(path)
    tokens = sorted(ids, key=lambda token: _id(ids[token], path))
    if [ids[token] for token in tokens] != list(range(len(tokens))):
        raise CheckpointError(f"{path.name} does not number its tokens from 0 to {len(tokens) - 1}")
    if missing := [token for token in (_UNKNOWN, _END, _PAD) if token not in ids]:
        raise CheckpointError(f"{path.name} lacks {', '.join(missing)}")
    return tokens


def _id(value: Any, path: Path) -> int:
    if type(value) is not int:
        raise CheckpointError(f"{path.name} holds the id {value!r}, which is no whole number")
    return value


def _read_pieces(path: Path) -> Any:
    """A sentencepiece model: the message `ModelProto` of sentencepiece_model.proto."""
    if find_spec("sentencepiece") is None:
        raise CheckpointError(
            f"{path.name} cannot be read without the package sentencepiece: "
            "pip install sentencepiece"
        )
    from google.protobuf.message import DecodeError

    messages: Any = import_module("sentencepiece.sentencepiece_model_pb2")  # it has no types
    try:
        pieces = messages.ModelProto.FromString(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    except DecodeError as error:
        raise CheckpointError(f"{path} is no sentencepiece model: {error}") from None
    _check_pieces(pieces, path)
    return pieces


def _check_pieces(pieces: Any, path: Path) -> None:
    """Refuses, by name, what sentencepiece can do and a Unigram model of `tokenizers` cannot."""
    trained, normalized = pieces.trainer_spec, pieces.normalizer_spec
    problems = [
        f"{name} is {found}, supported: {supported}"
        for name, found, supported in (
            ("model_type", trained.model_type, _UNIGRAM),
            ("treat_whitespace_as_suffix", trained.treat_whitespace_as_suffix, False),
            ("add_dummy_prefix", normalized.add_dummy_prefix, True),
            ("remove_extra_whitespaces", normalized.remove_extra_whitespaces, True),
            ("escape_whitespaces", normalized.escape_whitespaces, True),
        )
        if found != supported
    ]
    others = [p.piece for p in pieces.pieces if p.type not in (_NORMAL, _UNUSED, *_CONTROL)]
    if others:
        problems.append(f"{others[0]!r} is a piece of its user or a byte")
    if problems:
        raise CheckpointError(f"{path.name} cannot be converted: {'; '.join(problems)}")
