"""The parts of a transformer, told from the names of its parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

# The first that a name holds decides: a block's norm lies under its attention or feed-forward.
_PARTS = {
    "norm": "norms",
    "rotary": "position tables",
    "relative_bias": "position tables",
    "positions": "position tables",
    "embedding": "embeddings",
    "cross_attention": "cross-attention",
    "attention": "attention",
    "feed_forward": "feed-forward",
    "head": "output head",
}
OTHER = "other"


def part_of(name: str) -> str:
    """`encoder.blocks.0.attention.query.weight` -> `attention`."""
    segments = name.split(".")
    return next((part for segment, part in _PARTS.items() if segment in segments), OTHER)


def count_by_part(sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Sums sizes by part, in the order of the parts."""
    counts: Counter[str] = Counter()
    for name, size in sizes:
        counts[part_of(name)] += size
    order = [*dict.fromkeys(_PARTS.values()), OTHER]
    return {part: counts[part] for part in order if counts[part]}
