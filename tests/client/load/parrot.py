"""A server in this process that answers by rule, and answers some calls as badly as it is told."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from formerd.v1 import (
    embedding_pb2,
    embedding_pb2_grpc,
    generation_pb2,
    generation_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
)

from tests.client.scripted_server import Fail

_EVERY = 5  # so many calls under load are answered badly
_TOKENS = 3
_LIMITS = models_pb2.Limits(max_input_tokens=64, capacity=128, max_inputs=8, slots=4)
_MODEL = models_pb2.Model(
    name="parrot",
    kind=models_pb2.MODEL_KIND_ENCODER_DECODER,
    task=[models_pb2.TASK_EMBED, models_pb2.TASK_GENERATE],
    limits=_LIMITS,
)


@dataclass
class Parrot(
    embedding_pb2_grpc.EmbeddingServiceServicer,
    generation_pb2_grpc.GenerationServiceServicer,
    models_pb2_grpc.ModelServiceServicer,
):
    """Vectors and tokens are checksums of what is asked.

    Attributes:
        failure: what some of the calls under load end with.
        wrong: what is added to a value of some of the answers under load.
        texts: all that has been asked.
    """

    failure: Fail | None = None
    wrong: int = 0
    texts: list[str] = field(default_factory=list)
    _calls: Iterator[int] = field(default_factory=itertools.count)

    def ListModels(self, request: Any, context: Any) -> Any:  # noqa: N802
        return models_pb2.ListModelsResponse(models=[_MODEL])

    def Tokenize(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Every character is a token."""
        tokens = [models_pb2.Token(start=i, end=i + 1) for i in range(len(request.text))]
        return models_pb2.TokenizeResponse(tokens=tokens)

    def Embed(self, request: embedding_pb2.EmbedRequest, context: Any) -> Any:  # noqa: N802
        texts = [item.text for item in request.inputs]
        self.texts += texts
        values = [_checksum(text) % 1000 for text in texts]
        values[-1] += self._misbehave(request, context)
        vectors = [embedding_pb2.Vector(values=[value, 1.0]) for value in values]
        return embedding_pb2.EmbedResponse(
            embeddings=[embedding_pb2.Embedding(vector=vector) for vector in vectors],
            request_id=request.request_id,
        )

    def Generate(self, request: generation_pb2.GenerateRequest, context: Any) -> Any:  # noqa: N802
        completion = generation_pb2.Completion(finish_reason=generation_pb2.FINISH_REASON_LENGTH)
        for event in self.GenerateStream(request, context):
            completion.text += event.chunk.text
            completion.token_ids.extend(event.chunk.token_ids)
        return generation_pb2.GenerateResponse(
            completions=[completion], request_id=request.request_id
        )

    def GenerateStream(  # noqa: N802
        self, request: generation_pb2.GenerateRequest, context: Any
    ) -> Iterator[generation_pb2.GenerateEvent]:
        self.texts.append(request.prompt)
        question = f"{request.prompt} {request.sampling.seed}"
        ids = [_checksum(f"{question} {index}") for index in range(_TOKENS)]
        ids[-1] += self._misbehave(request, context)
        for token in ids:
            chunk = generation_pb2.GenerateChunk(text=f" {token}", token_ids=[token])
            yield generation_pb2.GenerateEvent(chunk=chunk)
        finished = generation_pb2.GenerateFinished(
            finish_reason=generation_pb2.FINISH_REASON_LENGTH
        )
        yield generation_pb2.GenerateEvent(finished=finished)
        summary = generation_pb2.GenerateSummary(request_id=request.request_id)
        yield generation_pb2.GenerateEvent(summary=summary)

    def EmbedStream(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError

    def GetModel(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError

    def Detokenize(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError

    def _misbehave(self, request: Any, context: grpc.ServicerContext) -> int:
        if not request.request_id.startswith("load") or next(self._calls) % _EVERY:
            return 0
        if self.failure is not None:
            self.failure(context)
        return self.wrong


@contextmanager
def serve(parrot: Parrot) -> Iterator[str]:
    """Serves on a free port of the loopback; yields the target."""
    server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server(parrot, server)
    generation_pb2_grpc.add_GenerationServiceServicer_to_server(parrot, server)
    models_pb2_grpc.add_ModelServiceServicer_to_server(parrot, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode()) % (1 << 31)
