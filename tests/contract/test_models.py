"""ModelService: what is loaded, and its tokenizer."""

from __future__ import annotations

import grpc
from formerd.v1 import models_pb2 as pb

from export.manifest import load_manifest
from tests.artefacts import decoder_artefact, encoder_artefact
from tests.contract.conftest import SLOTS
from tests.contract.stubs import Stubs, error_of


async def test_an_encoder_is_described(stubs: Stubs) -> None:
    manifest = load_manifest(encoder_artefact())
    response = await stubs.models.GetModel(pb.GetModelRequest(model="tiny-encoder"))
    model = response.model
    assert manifest.pooling is not None
    assert model.kind == pb.MODEL_KIND_ENCODER
    assert list(model.task) == [pb.TASK_EMBED]
    assert model.digest == manifest.digest
    assert model.dimensions == manifest.pooling.dimensions
    assert model.limits.max_input_tokens == manifest.limits.max_input
    assert model.limits.max_inputs > 0
    assert (model.limits.capacity, model.limits.slots) == (0, 0)
    assert (model.precision, model.device, model.provider) == (
        "fp32",
        "cpu",
        "CPUExecutionProvider",
    )


async def test_a_decoder_is_described(stubs: Stubs) -> None:
    manifest = load_manifest(decoder_artefact())
    model = (await stubs.models.GetModel(pb.GetModelRequest(model="tiny-decoder"))).model
    assert model.kind == pb.MODEL_KIND_DECODER
    assert list(model.task) == [pb.TASK_GENERATE]
    assert model.vocabulary_size == manifest.vocabulary_size
    assert (model.limits.slots, model.limits.max_inputs, model.dimensions) == (SLOTS, 0, 0)
    assert model.limits.max_input_tokens == model.limits.capacity - 1


async def test_all_models_are_listed(stubs: Stubs) -> None:
    listed = (await stubs.models.ListModels(pb.ListModelsRequest())).models
    one = (await stubs.models.GetModel(pb.GetModelRequest(model="tiny-decoder"))).model
    assert [model.name for model in listed] == ["tiny-encoder", "tiny-decoder"]
    assert listed[1] == one


async def test_a_model_that_is_not_loaded_is_not_found(stubs: Stubs) -> None:
    for call in (
        stubs.models.GetModel(pb.GetModelRequest(model="other")),
        stubs.models.Tokenize(pb.TokenizeRequest(model="other")),
        stubs.models.Detokenize(pb.DetokenizeRequest(model="other")),
    ):
        error = await error_of(call)
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert "tiny-encoder, tiny-decoder" in str(error.details())


async def test_text_goes_to_tokens_and_back(stubs: Stubs) -> None:
    text = "the café and 🙂 " * 300  # more than is tokenised on the event loop
    tokens = (
        await stubs.models.Tokenize(pb.TokenizeRequest(model="tiny-decoder", text=text))
    ).tokens
    assert "".join(dict.fromkeys(text[token.start : token.end] for token in tokens[:3])) == "the c"
    ids = [token.id for token in tokens]
    back = await stubs.models.Detokenize(pb.DetokenizeRequest(model="tiny-decoder", ids=ids))
    assert back.text == text
