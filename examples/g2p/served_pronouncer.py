"""Pronouncing words with a model that a server holds, many callers at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from client.sync import Client
from examples.g2p.dictionary import Pronunciation

_CALLERS = 32


class ServedPronouncer:
    """Asks the server for the likeliest phone each time, as `Pronouncer` does by itself."""

    def __init__(self, client: Client, model: str) -> None:
        self._client = client
        self._model = model

    def __call__(self, words: Sequence[str]) -> list[Pronunciation]:
        """A pronunciation for each word, in their order.

        Raises:
            CallFailed: the server did not answer one of the calls.
        """
        with ThreadPoolExecutor(_CALLERS) as callers:
            return list(callers.map(self._pronounce, words))

    def _pronounce(self, word: str) -> Pronunciation:
        return tuple(self._client.generate(word, model=self._model).text.split())
