"""Drift of embeddings: what is equal, what is turned, what is in another order."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from export.embedding_drift import EmbeddingBounds, compare_embeddings, embedding_drift
from tests.checkpoints import ENCODER, byte_tokenizer, tiny_checkpoint
from tests.export.graphs import tiny_encoder_pair

BOUNDS = EmbeddingBounds(worst_cosine=0.998, mean_cosine=0.999, spearman=0.99)


def _vectors() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((200, 16)).astype(np.float32)


def test_equal_embeddings_have_not_moved() -> None:
    drift = compare_embeddings(_vectors(), 3 * _vectors())  # lengths do not matter
    assert drift.worst_cosine == pytest.approx(1)
    assert drift.mean_cosine == pytest.approx(1)
    assert drift.spearman == pytest.approx(1)
    assert all(check.passed for check in drift.checks(BOUNDS))


def test_one_wrong_embedding_is_the_worst() -> None:
    found = _vectors()
    found[17] *= -1
    drift = compare_embeddings(_vectors(), found)
    assert drift.worst_cosine == pytest.approx(-1)
    assert drift.mean_cosine == pytest.approx(1 - 2 / 200)
    failed = [check.shape for check in drift.checks(BOUNDS) if not check.passed]
    assert failed[0] == "cosine at worst, 1000 sentences"


def test_the_order_of_pairs_is_seen() -> None:
    generator = np.random.default_rng(1)
    found = _vectors() + generator.standard_normal((200, 16)).astype(np.float32)
    drift = compare_embeddings(_vectors(), found)
    assert 0.2 < drift.spearman < 0.8


def test_what_is_not_a_number_fails() -> None:
    found = _vectors()
    found[3, 3] = np.nan
    drift = compare_embeddings(_vectors(), found)
    assert not any(check.passed for check in drift.checks(BOUNDS))


def test_a_graph_in_fp32_has_not_moved_and_one_of_another_model_has() -> None:
    pair = tiny_encoder_pair()
    tokenizer = byte_tokenizer(bracketed=True).to_str().encode()
    drift = embedding_drift(pair.model, pair.pooling, pair.session, tokenizer, 24)
    assert drift.worst_cosine > 1 - 1e-6
    other = tiny_checkpoint(ENCODER, seed=1).build()
    moved = embedding_drift(other, pair.pooling, pair.session, tokenizer, 24)
    assert moved.mean_cosine < 0.5
