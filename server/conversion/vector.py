"""The form in which a caller wants a vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from formerd.v1 import embedding_pb2 as pb

from export.manifest import PoolingSpec
from server.errors import InvalidInput


@dataclass(frozen=True)
class VectorForm:
    """The leading `dimensions` of the graph's vector, scaled to unit length if `scale`."""

    dimensions: int
    scale: bool

    @classmethod
    def read(cls, message: pb.EmbedRequest, pooling: PoolingSpec) -> Self:
        """What the request asks of a model that pools so.

        Raises:
            InvalidInput: more dimensions than there are, or a raw vector of a graph that
                normalises.
        """
        dimensions = message.dimensions if message.HasField("dimensions") else pooling.dimensions
        if not 1 <= dimensions <= pooling.dimensions:
            raise InvalidInput(
                f"dimensions is {dimensions}; it must be from 1 to {pooling.dimensions}"
            )
        if pooling.normalize and message.HasField("normalize") and not message.normalize:
            raise InvalidInput(
                "normalize is false, but this model's vectors are always normalised; leave it unset"
            )
        scaled_in_graph = pooling.normalize and dimensions == pooling.dimensions
        wants_unit_length = pooling.normalize or message.normalize
        return cls(dimensions, scale=wants_unit_length and not scaled_in_graph)

    def apply(self, vector: memoryview) -> list[float]:
        """Brings a float32 vector into this form; one of length zero stays as it is."""
        values = np.frombuffer(vector, dtype=np.float32)[: self.dimensions]
        length = np.linalg.norm(values.astype(np.float64)) if self.scale else 0.0
        scaled: list[float] = (values / length if length > 0 else values).tolist()
        return scaled
