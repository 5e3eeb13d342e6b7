"""Running an encoder's graph for a decoder: what it reads of some sources."""

from __future__ import annotations

from collections.abc import Sequence

import onnxruntime as ort

from export.decoder_run import Rows
from export.packing import Ids, pack, with_memory

_PREFIX = "cross."


def encode_sources(session: ort.InferenceSession, sources: Sequence[Ids]) -> Rows:
    """`{layer}.key|value` -> `[sources, G, longest, D]`; beyond a source it means nothing."""
    names = [each.name for each in session.get_outputs() if each.name.startswith(_PREFIX)]
    arrays = session.run(names, with_memory(pack(sources)))
    return dict(zip((name.removeprefix(_PREFIX) for name in names), arrays, strict=True))
