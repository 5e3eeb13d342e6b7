"""Which model a request means."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from export.manifest import Manifest, Task
from server.errors import InvalidInput, UnknownModel, WrongTask
from server.metrics import Metrics
from server.models import Model, Models
from server.tokenizer import Tokenizer
from tests.checkpoints import byte_tokenizer
from tests.server.manifests import decoder_manifest, encoder_decoder_manifest, encoder_manifest

TOKENIZER = Tokenizer(byte_tokenizer().to_str().encode())


def models(*manifests: Manifest) -> Models:
    """Models without engines: none of them can do anything."""
    metrics = Metrics(CollectorRegistry(), [manifest.name for manifest in manifests])
    return Models(
        Model(manifest, TOKENIZER, metrics.model(manifest.name)) for manifest in manifests
    )


def test_a_model_is_found_by_its_name_whatever_it_does() -> None:
    loaded = models(encoder_manifest("e"), decoder_manifest("d"))
    assert loaded.find("d", Task.EMBED).name == "d"
    assert loaded.find("e").name == "e"


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownModel, match=r"^model 'x' is not loaded; loaded: e, d$"):
        models(encoder_manifest("e"), decoder_manifest("d")).find("x")


def test_a_long_name_is_not_repeated_whole() -> None:
    with pytest.raises(UnknownModel) as raised:
        models(encoder_manifest("e")).find("x" * 100_000)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(("task", "name"), [(Task.EMBED, "e"), (Task.GENERATE, "d")])
def test_no_name_means_the_only_model_with_the_task(task: Task, name: str) -> None:
    assert models(encoder_manifest("e"), decoder_manifest("d")).find("", task).name == name


def test_where_several_embed_no_name_means_the_only_encoder() -> None:
    assert (
        models(encoder_decoder_manifest("b"), encoder_manifest("e")).find("", Task.EMBED).name
        == "e"
    )


@pytest.mark.parametrize(
    ("loaded", "task", "named"),
    [
        (models(encoder_manifest("e"), encoder_manifest("f")), Task.EMBED, "e, f"),
        (models(encoder_decoder_manifest("b"), encoder_decoder_manifest("c")), Task.EMBED, "b, c"),
        (models(encoder_decoder_manifest("b"), decoder_manifest("d")), Task.GENERATE, "b, d"),
        (models(encoder_manifest("e"), decoder_manifest("d")), None, "e, d"),
        (models(encoder_manifest("e")), Task.GENERATE, "none"),
    ],
)
def test_where_no_name_leaves_a_doubt_the_names_are_listed(
    loaded: Models, task: Task | None, named: str
) -> None:
    with pytest.raises(InvalidInput, match=rf"^model is empty; .*: {named}"):
        loaded.find("", task)


def test_a_model_without_the_engine_says_what_it_can_do() -> None:
    [encoder] = models(encoder_manifest("e"))
    with pytest.raises(WrongTask, match=r"^model e does not generate; it can embed$"):
        encoder.generate_with()
    [decoder] = models(decoder_manifest("d"))
    with pytest.raises(WrongTask, match=r"^model d does not embed; it can generate$"):
        decoder.embed_with()
