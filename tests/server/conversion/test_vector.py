"""Vectors are cut first and scaled then, and a wish that cannot be met is refused."""

from __future__ import annotations

import numpy as np
import pytest
from formerd.v1 import embedding_pb2 as pb

from export.manifest import PoolingSpec
from server.conversion.vector import VectorForm
from server.errors import InvalidInput

NORMALISED = PoolingSpec("mean", normalize=True, dimensions=4)
RAW = PoolingSpec("mean", normalize=False, dimensions=4)
VALUES = np.array([0.5, -0.5, 0.1, 0.7], dtype=np.float32)


def shaped(message: pb.EmbedRequest, pooling: PoolingSpec) -> np.ndarray:
    return np.array(VectorForm.read(message, pooling).apply(VALUES.data), np.float32)


@pytest.mark.parametrize("pooling", [NORMALISED, RAW])
def test_unset_is_what_the_graph_gives(pooling: PoolingSpec) -> None:
    np.testing.assert_array_equal(shaped(pb.EmbedRequest(), pooling), VALUES)


def test_a_normalised_vector_is_not_scaled_twice() -> None:
    np.testing.assert_array_equal(shaped(pb.EmbedRequest(normalize=True), NORMALISED), VALUES)


def test_a_raw_vector_is_scaled_on_request() -> None:
    wanted = VALUES / np.linalg.norm(VALUES)
    np.testing.assert_allclose(shaped(pb.EmbedRequest(normalize=True), RAW), wanted, rtol=1e-6)
    np.testing.assert_array_equal(shaped(pb.EmbedRequest(normalize=False), RAW), VALUES)


def test_fewer_dimensions_are_cut_and_scaled_again_where_the_model_normalises() -> None:
    request = pb.EmbedRequest(dimensions=2)
    half = np.sqrt(0.5, dtype=np.float32)
    np.testing.assert_allclose(shaped(request, NORMALISED), [half, -half], rtol=1e-6)
    np.testing.assert_array_equal(shaped(request, RAW), VALUES[:2])


def test_a_zero_vector_stays_zero() -> None:
    form = VectorForm.read(pb.EmbedRequest(normalize=True), RAW)
    assert form.apply(np.zeros(4, np.float32).data) == [0.0] * 4


def test_a_raw_vector_of_a_graph_that_normalises_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^normalize is false"):
        VectorForm.read(pb.EmbedRequest(normalize=False), NORMALISED)


@pytest.mark.parametrize("dimensions", [0, 5])
def test_dimensions_that_the_model_lacks_are_refused(dimensions: int) -> None:
    with pytest.raises(InvalidInput, match=f"^dimensions is {dimensions}; it must be from 1 to 4"):
        VectorForm.read(pb.EmbedRequest(dimensions=dimensions), RAW)
