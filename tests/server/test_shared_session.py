"""One session for several engines, which start and run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from server.artefact import ArtefactError
from server.encoder_runner import EncoderRunner
from server.limits import DecoderLimits, encoder_limits
from server.packing import pack
from server.seq2seq_runner import Seq2seqRunner
from server.shared_session import SharedSession
from tests.artefacts import encoder_artefact, encoder_decoder_artefact
from tests.server.engines import artefact


def test_all_threads_get_the_same_session() -> None:
    shared = SharedSession(artefact(encoder_artefact()), "encoder")
    with ThreadPoolExecutor(4) as threads:
        sessions = list(threads.map(lambda _: shared.open(), range(8)))
    assert all(session is sessions[0] for session in sessions)


def test_threads_may_run_it_at_the_same_time() -> None:
    session = SharedSession(artefact(encoder_artefact()), "encoder").open()
    feeds = [pack([list(range(10, 10 + length))]).feeds() for length in (3, 20, 60, 200)]
    alone = [session.run(["embeddings"], each)[0] for each in feeds]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda i: session.run(["embeddings"], feeds[i % 4]), range(80)))
    for index, (vectors,) in enumerate(together):
        np.testing.assert_array_equal(vectors, alone[index % 4])


def test_both_engines_of_a_model_may_run_it_at_the_same_time() -> None:
    both = artefact(encoder_decoder_artefact())
    shared = SharedSession(both, "encoder")
    limits = DecoderLimits(2, 16, 512, 1, 1, 1.0, source_capacity=256)
    targets = Seq2seqRunner(both, limits, encoder=shared)
    texts = EncoderRunner(both, encoder_limits(both.manifest), session=shared)
    start = threading.Barrier(2)

    def generate(rounds: int) -> list[bytes]:
        return [translate(targets, sources(each)) for each in range(rounds)]

    def embed(rounds: int) -> list[bytes]:
        return [texts.encode(sources(each + 3)).tobytes() for each in range(rounds)]

    def at_once(compute: Callable[[int], list[bytes]]) -> list[bytes]:
        start.wait(30)
        return compute(40)

    alone = [generate(40), embed(40)]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(at_once, (generate, embed))) == alone
    assert len(set(alone[0])) == len(set(alone[1])) == 40


def translate(runner: Seq2seqRunner, sources: Sequence[Sequence[int]]) -> bytes:
    """The logits after a few tokens of the target of each source."""
    runner.encode(sources)
    logits = b""
    for index, _ in enumerate(sources):
        runner.place(index, index)
        logits += b"".join(runner.decode_row(index, 9, step).tobytes() for step in range(2))
    return logits


def sources(number: int) -> list[list[int]]:
    """Two of other lengths and tokens for every number."""
    return [
        [10 + (number * 7 + i) % 200 for i in range(length)]
        for length in (1 + number * 5 % 61, 90 + number)
    ]


def test_each_who_opens_it_hears_why_it_cannot_be() -> None:
    whole = artefact(encoder_artefact())
    shared = SharedSession(replace(whole, files=whole.files | {"encoder.onnx": b""}), "encoder")
    for _ in range(2):
        with pytest.raises(ArtefactError, match=r"encoder\.onnx"):
            shared.open()
