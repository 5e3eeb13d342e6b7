"""What an artefact becomes: its engines and tokenizers."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from server import loading, seq2seq_runner, shared_session
from server.artefact import ArtefactError, load_artefact
from server.errors import InputTooLong
from server.loading import make_models
from server.metrics import Metrics
from server.models import Model
from server.request import EmbedItem
from server.session import open_session
from server.shared_session import SharedSession
from tests.artefacts import decoder_artefact, encoder_artefact, reseal, two_vocabularies_artefact
from tests.checkpoints import VOCABULARY, target_tokenizer
from tests.server.test_daemon import SETTINGS


async def made(*directories: Path, **changed: Any) -> list[Model]:
    """The models of artefacts, not started, with some settings of their own."""
    artefacts = [load_artefact(directory) for directory in directories]
    metrics = Metrics(CollectorRegistry(), [artefact.manifest.name for artefact in artefacts])
    settings = replace(SETTINGS, cache_bytes=1 << 22, slots=2, **changed)
    return make_models(artefacts, settings, metrics, asyncio.get_running_loop())


async def test_a_kind_decides_the_engines() -> None:
    encoder, decoder, both = await made(
        encoder_artefact(), decoder_artefact(), two_vocabularies_artefact()
    )
    assert (encoder.encoder is None, encoder.generator is None) == (False, True)
    assert (decoder.encoder is None, decoder.generator is None) == (True, False)
    assert len(both.engines) == 2


async def test_sources_and_targets_have_their_tokenizers() -> None:
    decoder, both = await made(decoder_artefact(), two_vocabularies_artefact())
    assert decoder.target_tokenizer is decoder.tokenizer
    assert both.tokenizer.vocabulary_size == VOCABULARY
    assert both.target_tokenizer.vocabulary_size == target_tokenizer().get_vocab_size()


async def test_what_is_embedded_is_no_longer_than_a_source() -> None:
    [model] = await made(two_vocabularies_artefact(), max_length=16)
    assert model.encoder is not None
    assert model.max_input == 16
    with pytest.raises(InputTooLong, match="17 tokens; this model takes at most 16"):
        model.encoder.submit([EmbedItem((5,) * 17)], lambda _: None, None)


async def test_both_engines_run_one_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def counting(artefact: Any, role: str, **options: Any) -> Any:
        opened.append(role)
        return open_session(artefact, role, **options)

    for module in (shared_session, seq2seq_runner):
        monkeypatch.setattr(module, "open_session", counting)
    [model] = await made(two_vocabularies_artefact())
    with ExitStack() as stack:
        for engine in model.engines:
            await asyncio.to_thread(engine.start)
            stack.callback(engine.stop)
    assert sorted(opened) == ["decoder", "encoder"]


async def test_only_an_encoder_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    shared: list[tuple[str, str]] = []

    def noting(artefact: Any, role: str, **options: Any) -> SharedSession:
        shared.append((artefact.manifest.kind, role))
        return SharedSession(artefact, role, **options)

    monkeypatch.setattr(loading, "SharedSession", noting)
    await made(decoder_artefact(), encoder_artefact())
    assert shared == [("encoder", "encoder")]


async def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    directory = shutil.copytree(two_vocabularies_artefact(), tmp_path / "swapped")
    shutil.copy(directory / "target_tokenizer.json", directory / "tokenizer.json")
    reseal(directory)
    with pytest.raises(ArtefactError, match=rf" tokenizer\.json has ids up to {VOCABULARY + 8}"):
        await made(directory)
