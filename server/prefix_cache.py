"""Which prefill chunks are kept, and in which place: the bookkeeping of the prefix cache.

The keys and values of a chunk depend on all tokens up to its end, so chunks form trees, one for
each partition of callers: a node is one chunk behind the chunks above it.

    partition "a" -- (1, 2) -- (3, 4) -- (5, 6)
                           \\-- (3, 9)

Chunks are told apart by their very tokens, never by a digest of them. Whoever uses a chunk uses
all that it builds on, and those count as used after it: so the one used longest ago has nothing
built on it, and is the one to make room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

Chunk = tuple[int, ...]


@dataclass(eq=False)
class _Node:
    """One chunk, kept in `place`."""

    partition: str
    parent: _Node | None
    chunk: Chunk
    place: int
    children: dict[Chunk, _Node] = field(default_factory=dict)


class PrefixCache:
    """Chunks of prompts in a fixed number of places; plain data, the bytes lie elsewhere.

    Attributes:
        places: how many chunks can be kept; 0 keeps none.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._first: dict[str, dict[Chunk, _Node]] = {}  # of each partition, how prompts begin
        self._by_use: OrderedDict[int, _Node] = OrderedDict()  # by place, least recent first

    def __len__(self) -> int:
        """How many chunks are kept."""
        return len(self._by_use)

    def find(self, partition: str, chunks: Sequence[Chunk]) -> list[int]:
        """The places of the longest known beginning of a prompt, one a chunk; they count as used.

        Args:
            partition: whose chunks may be found; others' never are.
            chunks: the tokens of the prompt's whole chunks, in order.
        """
        path = self._path(partition, chunks)
        self._use(path)
        return [node.place for node in path]

    def add(self, partition: str, chunks: Sequence[Chunk]) -> int | None:
        """Keeps the last of `chunks`, which builds on all before it.

        Returns:
            The place to copy it to, whose former content is forgotten; None where there is nothing
            to copy: it is kept already, what it builds on is not, or there is no room beside that.
        """
        path = self._path(partition, chunks)
        self._use(path)
        if len(path) != len(chunks) - 1:
            return None
        parent = path[-1] if path else None
        place = self._free_place(parent)
        if place is None:
            return None
        node = _Node(partition, parent, chunks[-1], place)
        siblings = parent.children if parent else self._first.setdefault(partition, {})
        siblings[node.chunk] = self._by_use[place] = node
        self._use([*path, node])
        return place

    def _path(self, partition: str, chunks: Sequence[Chunk]) -> list[_Node]:
        """The nodes of the longest known beginning."""
        path: list[_Node] = []
        known = self._first.get(partition, {})
        for chunk in chunks:
            if chunk not in known:
                break
            path.append(known[chunk])
            known = known[chunk].children
        return path

    def _use(self, path: Sequence[_Node]) -> None:
        for node in reversed(path):
            self._by_use.move_to_end(node.place)

    def _free_place(self, parent: _Node | None) -> int | None:
        """A place for a chunk behind `parent`, which itself must stay."""
        if len(self) < self.places:
            return len(self)
        oldest = next(iter(self._by_use.values()), None)
        if oldest is None or oldest is parent:
            return None
        self._forget(oldest)
        return oldest.place

    def _forget(self, node: _Node) -> None:
        """Takes out a chunk that nothing builds on, and its partition with the last of them."""
        del self._by_use[node.place]
        siblings = node.parent.children if node.parent else self._first[node.partition]
        del siblings[node.chunk]
        if not siblings and node.parent is None:
            del self._first[node.partition]
