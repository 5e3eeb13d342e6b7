from __future__ import annotations

import grpc
import pytest
from formerd.v1 import embedding_pb2, generation_pb2, models_pb2

from client import wire
from client.options import Message
from client.results import (
    Chunk,
    Completion,
    Finished,
    FinishReason,
    GenerateTiming,
    Summary,
    Token,
    TokenLogprob,
    Usage,
)
from tests.client.scripted_server import item_error, retry_info


def test_embed_request_tells_texts_from_ids() -> None:
    request = wire.embed_request(["a", [5, 6]], {"truncate": False, "dimensions": 64})
    assert [item.WhichOneof("input") for item in request.inputs] == ["text", "tokens"]
    assert list(request.inputs[1].tokens.ids) == [5, 6]
    assert request.HasField("truncate")
    assert not request.truncate
    assert not request.HasField("normalize")
    assert request.dimensions == 64


def test_generate_request_leaves_unset_what_was_not_asked_for() -> None:
    request = wire.generate_request("hello", {})
    assert request.prompt == "hello"
    assert [field.name for field, _ in request.ListFields()] == ["prompt"]


def test_generate_request_puts_each_option_in_its_place() -> None:
    request = wire.generate_request(
        "hello",
        {
            "model": "m",
            "temperature": 0.0,
            "top_k": 3,
            "seed": 2**64 - 1,
            "logit_bias": {7: -1.5},
            "max_new_tokens": 9,
            "stop": ["\n", "END"],
            "stop_token_ids": [1],
            "ignore_eos": True,
            "n": 2,
            "beam_width": 4,
            "length_penalty": 0.5,
            "top_logprobs": 5,
            "parse_control_tokens": False,
            "request_id": "r1",
        },
    )
    assert request.model == "m"
    assert request.sampling.HasField("temperature")  # zero was asked for: not the same as unset
    assert request.sampling.temperature == 0.0
    assert request.sampling.top_k == 3
    assert request.sampling.seed == 2**64 - 1
    assert dict(request.sampling.logit_bias) == {7: -1.5}
    assert request.stopping.max_new_tokens == 9
    assert list(request.stopping.stop) == ["\n", "END"]
    assert list(request.stopping.stop_token_ids) == [1]
    assert request.stopping.ignore_eos
    assert request.n == 2
    assert (request.beam.width, request.beam.length_penalty) == (4, 0.5)
    assert request.output.top_logprobs == 5
    assert request.HasField("parse_control_tokens")
    assert request.request_id == "r1"


def test_every_option_reaches_a_field_of_the_request() -> None:
    from client.options import GenerateOptions

    values = {"float": 0.5, "int": 1, "bool": True, "str": "s"}
    for name, kind in GenerateOptions.__annotations__.items():
        spelled = str(getattr(kind, "__forward_arg__", kind))
        value = values.get(spelled.partition(" | ")[0])
        value = value or ({1: 0.5} if "Mapping" in spelled else None)
        value = value or (["x"] if "str" in spelled else [1])
        request = wire.generate_request("p", {name: value})  # type: ignore[misc]
        assert len(request.ListFields()) == 2, name


def test_chat_and_ids_have_fields_of_their_own() -> None:
    chat = wire.generate_request([Message("system", "be brief"), Message("user", "hi")], {})
    assert [(turn.role, turn.content) for turn in chat.chat.messages] == [
        ("system", "be brief"),
        ("user", "hi"),
    ]
    assert list(wire.generate_request((3, 4), {}).tokens.ids) == [3, 4]
    begun = wire.generate_request("p", {"decoder_prompt": "Der"}).decoder_prompt
    assert begun == generation_pb2.DecoderPrompt(text="Der")
    begun = wire.generate_request("p", {"decoder_prompt": [5, 6]}).decoder_prompt
    assert list(begun.tokens.ids) == [5, 6]
    assert wire.generate_request([], {}).WhichOneof("input") == "tokens"  # refused by the server


@pytest.mark.parametrize("options", [{"tempo": 1.0}, {"max_new_tokens": -1}])
def test_what_no_field_can_hold_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"tempo|out of range"):
        wire.generate_request("p", options)  # type: ignore[arg-type]


def test_embeddings_keep_the_order_and_the_errors_of_their_items() -> None:
    error = item_error("the vector is not finite")
    error.details.append(retry_info(1.25))
    result = wire.to_embeddings(
        embedding_pb2.EmbedResponse(
            model="m",
            embeddings=[
                embedding_pb2.Embedding(
                    vector=embedding_pb2.Vector(values=[0.5, -1.0]), token_count=3, truncated=True
                ),
                embedding_pb2.Embedding(error=error),
            ],
            usage=embedding_pb2.EmbedUsage(prompt_tokens=3),
        )
    )
    first, second = result.items
    assert (first.vector, first.error) == ((0.5, -1.0), None)
    assert (first.token_count, first.truncated) == (3, True)
    assert second.vector is None
    assert second.error is not None
    assert second.error.code is grpc.StatusCode.INTERNAL
    assert second.error.retry_after == 1.25
    assert result.prompt_tokens == 3
    with pytest.raises(type(second.error), match="not finite"):
        _ = result.vectors


def test_generation_is_read_whole() -> None:
    top = generation_pb2.TokenLogprob(token_id=4, token="b", logprob=-2.0)
    logprob = generation_pb2.Logprob(token_id=3, token="a", logprob=-0.5, top=[top])
    result = wire.to_generation(
        generation_pb2.GenerateResponse(
            model="m",
            completions=[
                generation_pb2.Completion(
                    index=0,
                    text="a",
                    token_ids=[3, 2],
                    finish_reason=generation_pb2.FINISH_REASON_STOP,
                    stop_sequence=".",
                    logprobs=[logprob],
                )
            ],
            seed=11,
            usage=generation_pb2.GenerateUsage(prompt_tokens=5, completion_tokens=2),
            timing=generation_pb2.GenerateTiming(queue_seconds=1, time_to_first_token_seconds=2),
            request_id="r",
        )
    )
    read = TokenLogprob(3, "a", -0.5, (TokenLogprob(4, "b", -2.0),))
    assert result.completions == (Completion(0, "a", (3, 2), FinishReason.STOP, ".", (read,)),)
    assert result.text == "a"
    assert result.summary == Summary(
        "m", 11, Usage(5, 2, 0), GenerateTiming(1.0, 0.0, 0.0, 2.0), "r"
    )


def test_events_are_told_apart_and_unknown_ones_skipped() -> None:
    chunk = generation_pb2.GenerateChunk(index=1, text="x", token_ids=[8])
    finished = generation_pb2.GenerateFinished(
        index=1, finish_reason=generation_pb2.FINISH_REASON_LENGTH
    )
    summary = generation_pb2.GenerateSummary(model="m", seed=3)
    event = generation_pb2.GenerateEvent
    assert wire.to_event(event(chunk=chunk)) == Chunk(1, "x", (8,))
    assert wire.to_event(event(finished=finished)) == Finished(1, FinishReason.LENGTH)
    read = wire.to_event(event(summary=summary))
    assert isinstance(read, Summary)
    assert read.seed == 3
    assert wire.to_event(event()) is None


def test_models_and_tokens_are_plain_data() -> None:
    model = wire.to_model(
        models_pb2.Model(
            name="m",
            kind=models_pb2.MODEL_KIND_ENCODER_DECODER,
            task=[models_pb2.TASK_EMBED, models_pb2.TASK_GENERATE],
            limits=models_pb2.Limits(max_input_tokens=256, slots=16),
        )
    )
    assert (model.kind, model.tasks) == ("encoder_decoder", ("embed", "generate"))
    assert (model.max_input_tokens, model.slots) == (256, 16)
    newer = models_pb2.Model()
    newer.ParseFromString(b"\x10\x63")  # field 2, kind, as 99
    assert wire.to_model(newer).kind == "99"
    response = models_pb2.TokenizeResponse(
        tokens=[models_pb2.Token(id=1, text="ca", start=0, end=2)]
    )
    assert wire.to_tokens(response) == (Token(1, "ca", 0, 2),)
