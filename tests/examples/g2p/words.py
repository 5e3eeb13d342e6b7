"""A small dictionary whose spelling is regular: enough to learn in seconds, or less."""

from __future__ import annotations

from itertools import product

from examples.g2p.dictionary import Entry
from examples.g2p.recipe import Recipe
from examples.g2p.split import Split

_CONSONANTS = {"b": "B", "d": "D", "k": "K", "l": "L", "m": "M", "n": "N", "p": "P", "t": "T"}
_VOWELS = {"a": "AE1", "e": "EH1", "i": "IH1"}
TINY = Recipe(
    epochs=2,
    d_model=32,
    heads=2,
    d_ff=32,
    encoder_layers=1,
    decoder_layers=1,
    words_per_batch=32,
    average_decay=0.9,
)


def syllables() -> list[Entry]:
    """All words of a consonant, a vowel and a consonant."""
    phones = _CONSONANTS | _VOWELS
    return [
        Entry("".join(letters), (tuple(phones[letter] for letter in letters),))
        for letters in product(_CONSONANTS, _VOWELS, _CONSONANTS)
    ]


def split_syllables() -> Split:
    """Every seventh is for validation, every seventh for the test."""
    entries = syllables()
    training = [entry for i, entry in enumerate(entries) if i % 7 > 1]
    return Split(tuple(training), tuple(entries[::7]), tuple(entries[1::7]))
