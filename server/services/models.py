"""formerd.v1.ModelService."""

from __future__ import annotations

from formerd.v1 import models_pb2 as pb
from formerd.v1.models_pb2_grpc import ModelServiceServicer

from server.calls import Calls
from server.context import Context
from server.conversion.model_description import write_model
from server.conversion.tokens import detokenize, tokenize
from server.models import Models
from server.worker import Worker


class ModelService(ModelServiceServicer):
    """What is loaded, and its tokenizers."""

    def __init__(
        self, calls: Calls, models: Models, worker: Worker, max_response_bytes: int
    ) -> None:
        self._calls = calls
        self._models = models
        self._worker = worker
        self._max_response_bytes = max_response_bytes

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        async with self._calls.rpc("ListModels", context):
            described = [write_model(model, self._max_response_bytes) for model in self._models]
            return pb.ListModelsResponse(models=described)

    async def GetModel(self, request: pb.GetModelRequest, context: Context) -> pb.GetModelResponse:
        async with self._calls.rpc("GetModel", context, request.model) as call:
            return pb.GetModelResponse(model=write_model(call.model, self._max_response_bytes))

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        async with self._calls.rpc("Tokenize", context, request.model) as call:
            tokenizer = call.model.tokenizer
            response, call.facts["tokenize_seconds"] = await self._worker.convert(
                request,
                lambda: tokenize(request, tokenizer, self._max_response_bytes),
                call.model.metrics.tokenize_duration,
            )
            return response

    async def Detokenize(
        self, request: pb.DetokenizeRequest, context: Context
    ) -> pb.DetokenizeResponse:
        async with self._calls.rpc("Detokenize", context, request.model) as call:
            tokenizer = call.model.target_tokenizer
            response, _ = await self._worker.convert(
                request,
                lambda: detokenize(request, tokenizer, self._max_response_bytes),
                call.model.metrics.tokenize_duration,
            )
            return response
