"""One session for several engines, which start and run at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from server.artefact import ArtefactError
from server.packing import pack
from server.shared_session import SharedSession
from tests.artefacts import encoder_artefact
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


def test_each_who_opens_it_hears_why_it_cannot_be() -> None:
    whole = artefact(encoder_artefact())
    shared = SharedSession(replace(whole, files=whole.files | {"encoder.onnx": b""}), "encoder")
    for _ in range(2):
        with pytest.raises(ArtefactError, match=r"encoder\.onnx"):
            shared.open()
