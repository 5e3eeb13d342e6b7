"""Encodes text that spells a control token as the text it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer

# Put before a piece from within a text, so that it is not given the space of a text's beginning.
_LEAD = "\n"


class PlainTextEncoder:
    """A tokenizer without control tokens, whose model can no longer find one either.

    To drop them from the added tokens is not enough: a Unigram model finds `</s>` in its
    vocabulary by itself. Here those entries have names that no text holds; their ids stay.
    """

    def __init__(self, description: dict[str, Any], control_tokens: Mapping[int, str]) -> None:
        """`description` is the content of a tokenizer.json, `control_tokens` spellings by id."""
        self._raw = Tokenizer.from_str(json.dumps(_without(control_tokens, description)))
        self._lead_ids = self._ids(_LEAD)

    def encode(self, text: str, at_start: bool) -> list[int]:
        """Ids of a piece of text; `at_start` tells whether it begins the whole text."""
        if at_start:
            return self._ids(text)
        ids, lead = self._ids(_LEAD + text), self._lead_ids
        return ids[len(lead) :] if ids[: len(lead)] == lead else self._ids(text)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._raw.encode(text, add_special_tokens=False).ids
        return ids


def _without(control_tokens: Mapping[int, str], description: dict[str, Any]) -> dict[str, Any]:
    # A noncharacter, which no two programs exchange, and the id.
    names = {spelling: f"\U0010ffff{i}" for i, spelling in control_tokens.items()}
    model = dict(description["model"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(name, name): i for name, i in model["vocab"].items()}
    else:  # Unigram
        model["vocab"] = [[names.get(name, name), score] for name, score in model["vocab"]]
    if "merges" in model:
        model["merges"] = [merge for merge in model["merges"] if not _makes_any(merge, names)]
    if (unknown := model.get("unk_token")) is not None:
        model["unk_token"] = names.get(unknown, unknown)
    added = [t for t in description["added_tokens"] if t["id"] not in control_tokens]
    return {
        **description,
        "model": model,
        "added_tokens": added,
        "padding": None,
        "truncation": None,
        "post_processor": None,
    }


def _makes_any(merge: str | list[str], names: dict[str, str]) -> bool:
    """Whether a BPE merge, `left right` in old files, takes or makes one of the names."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left in names or right in names or left + right in names
