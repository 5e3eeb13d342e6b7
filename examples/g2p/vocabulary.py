"""What the model reads and writes: letters and phones, as two tokenizers."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

START, END, UNKNOWN = "<s>", "</s>", "<unk>"
START_ID, END_ID = 0, 1  # in both vocabularies
LETTERS = "abcdefghijklmnopqrstuvwxyz'-."
VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
CONSONANTS = (
    *("B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N"),
    *("NG", "P", "R", "S", "SH", "T", "TH", "V", "W", "Y", "Z", "ZH"),
)
PHONES = (*CONSONANTS, *(vowel + stress for vowel in VOWELS for stress in "012"))


def spelling_tokenizer() -> Tokenizer:
    """One token a letter, between a start and an end.

    Case and accents do not matter. What is not in `LETTERS` is left out, digits and spaces too, so
    that nothing is unknown.
    """
    tokenizer = _tokenizer((START, END), LETTERS)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"),
            normalizers.Replace(Regex(r"[^a-z'.\-]"), ""),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(START, START_ID), (END, END_ID)]
    )
    return tokenizer


def phone_tokenizer() -> Tokenizer:
    """One token a phone, with spaces between them; nothing is added."""
    tokenizer = _tokenizer((START, END, UNKNOWN), PHONES)
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def _tokenizer(specials: tuple[str, ...], tokens: Iterable[str]) -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate((*specials, *tokens))}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=UNKNOWN))
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in specials]
    )
    return tokenizer
