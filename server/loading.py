"""From the artefacts' directories to models that are ready to start."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from export.manifest import (
    TARGET_TOKENIZER_FILE,
    TOKENIZER_FILE,
    Device,
    Manifest,
    ManifestError,
    Task,
    load_manifest,
)
from server.artefact import Artefact, ArtefactError, load_artefact
from server.chat import ChatTemplate
from server.cuda import free_memory
from server.decoder_engine import DecoderEngine
from server.encoder_engine import EncoderEngine
from server.interface import source_vocabulary_size
from server.limits import (
    CACHE_SHARE,
    PREFIX_CACHE_SHARE,
    DecoderLimits,
    EncoderLimits,
    decoder_limits,
    encoder_limits,
    share_cache_bytes,
)
from server.memory_budget import ModelMemory, allowed_memory, process_memory
from server.metrics import Metrics
from server.models import Generator, Model
from server.settings import Settings
from server.shared_session import SharedSession
from server.tokenizer import Tokenizer


def load_artefacts(settings: Settings) -> list[Artefact]:
    """Verifies every artefact, before anything of them is loaded.

    Raises:
        ArtefactError: one cannot be trusted, is for another device, is not the one that
            --expect-digest pins, or two have one name.
    """
    names = [_name(directory) for directory in settings.directories]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ArtefactError(f"several artefacts are named {repeated[0]}; build with another --name")
    if missing := sorted(set(settings.expect_digest) - set(names)):
        raise ArtefactError(f"--expect-digest names {missing[0]}, which no directory holds")
    artefacts = [
        load_artefact(directory, settings.expect_digest.get(name))
        for directory, name in zip(settings.directories, names, strict=True)
    ]
    for artefact in artefacts:
        _check_device(artefact, settings)
    return artefacts


def make_models(
    artefacts: Sequence[Artefact],
    settings: Settings,
    metrics: Metrics,
    loop: asyncio.AbstractEventLoop,
) -> list[Model]:
    """The models of verified artefacts; their engines are not started yet.

    Raises:
        ArtefactError: a tokenizer or a chat template cannot be read.
        DeviceError: the memory of a device cannot be told.
        LimitError: the cache has no room.
    """
    cache_bytes, prefix_cache_bytes = _divide_caches(artefacts, settings)
    return [
        _ModelMaker(artefact, settings, metrics, loop).make(
            cache_bytes.get(name, 0), prefix_cache_bytes.get(name, 0)
        )
        for artefact in artefacts
        for name in [artefact.manifest.name]
    ]


class _ModelMaker:
    """Makes one model."""

    def __init__(
        self,
        artefact: Artefact,
        settings: Settings,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._artefact = artefact
        self._manifest = artefact.manifest
        self._settings = settings
        self._metrics = metrics.model(artefact.manifest.name)
        self._loop = loop
        self._device_index = settings.device.index if settings.device else 0
        self._tokenizer, self._target_tokenizer = _read_tokenizers(artefact)
        self._encoder_session = (
            self._share_encoder() if "encoder" in self._manifest.graphs else None
        )

    def make(self, cache_bytes: int, prefix_cache_bytes: int) -> Model:
        self._metrics.describe(self._manifest)
        tasks = self._manifest.task
        decoder = (
            self._decoder_limits(cache_bytes, prefix_cache_bytes)
            if Task.GENERATE in tasks
            else None
        )
        encoder = self._encoder_limits(decoder) if Task.EMBED in tasks else None
        return Model(
            self._manifest,
            self._tokenizer,
            self._metrics,
            encoder=self._encoder(encoder) if encoder else None,
            generator=self._generator(decoder) if decoder else None,
            memory=ModelMemory.of(self._manifest, encoder, decoder),
        )

    def _share_encoder(self) -> SharedSession:
        return SharedSession(
            self._artefact,
            "encoder",
            device_index=self._device_index,
            threads=self._settings.threads,
        )

    def _encoder_limits(self, decoder: DecoderLimits | None) -> EncoderLimits:
        """What it embeds is no longer than what it generates from."""
        settings = self._settings
        return encoder_limits(
            self._manifest,
            max_input=decoder.max_input if decoder else None,
            max_batch_tokens=settings.max_batch_tokens,
            max_queue=settings.max_queue,
            max_queue_tokens=settings.max_queue_tokens,
            max_wait_seconds=settings.max_wait_ms / 1000,
            max_request_seconds=settings.max_request_seconds,
        )

    def _decoder_limits(self, cache_bytes: int, prefix_cache_bytes: int) -> DecoderLimits:
        settings = self._settings
        return decoder_limits(
            self._manifest,
            cache_bytes,
            prefix_cache_bytes=prefix_cache_bytes,
            slots=settings.slots,
            max_length=settings.max_length,
            prefill_chunk=settings.prefill_chunk,
            max_queue=settings.max_queue,
            max_queue_tokens=settings.max_queue_tokens,
            max_request_seconds=settings.max_request_seconds,
        )

    def _encoder(self, limits: EncoderLimits) -> EncoderEngine:
        return EncoderEngine(
            self._artefact,
            limits,
            self._metrics,
            self._loop,
            session=self._encoder_session,
        )

    def _generator(self, limits: DecoderLimits) -> Generator:
        engine = DecoderEngine(
            self._artefact,
            self._target_tokenizer,
            limits,
            self._metrics,
            self._loop,
            device_index=self._device_index,
            threads=self._settings.threads,
            encoder=self._encoder_session,
        )
        template = _read_chat_template(self._artefact)
        return Generator(engine, self._target_tokenizer, limits, template)


def _name(directory: Path) -> str:
    try:
        return load_manifest(directory).name
    except ManifestError as error:
        raise ArtefactError(f"{directory}: {error}") from None


def _check_device(artefact: Artefact, settings: Settings) -> None:
    built_for = artefact.manifest.device
    if settings.device is not None and settings.device.device is not built_for:
        raise ArtefactError(
            f"{artefact.directory}: built for {built_for}, but --device is "
            f"{settings.device.device}: build it again with that --device"
        )


def _divide_caches(
    artefacts: Sequence[Artefact], settings: Settings
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Bytes of cache and of prefix cache for each model that generates.

    Raises:
        DeviceError: the memory of a device cannot be told.
    """
    manifests = [artefact.manifest for artefact in artefacts]
    generating = {manifest.name: manifest for manifest in manifests if "decoder" in manifest.graphs}
    if not generating:
        return {}, {}
    if settings.cache_bytes is not None:
        caches = share_cache_bytes(settings.cache_bytes, generating)
    else:
        caches = _default_caches(manifests, generating, settings)
    if settings.prefix_cache_bytes is not None:
        return caches, share_cache_bytes(settings.prefix_cache_bytes, generating)
    return caches, {name: int(PREFIX_CACHE_SHARE * size) for name, size in caches.items()}


def _default_caches(
    manifests: Sequence[Manifest], generating: Mapping[str, Manifest], settings: Settings
) -> dict[str, int]:
    """Of each device, its part for the models that generate there."""
    caches: dict[str, int] = {}
    for device in sorted({manifest.device for manifest in generating.values()}):
        if device is Device.CPU:
            room = allowed_memory(settings.memory_limit) - process_memory()
            read = manifests  # wherever they go
        else:
            room = free_memory(settings.device.index if settings.device else 0)
            read = [manifest for manifest in manifests if manifest.device is device]
        left = max(0, room - sum(map(_size, read)))
        there = {name: each for name, each in generating.items() if each.device is device}
        caches |= share_cache_bytes(int(CACHE_SHARE * left), there)
    return caches


def _size(manifest: Manifest) -> int:
    return sum(file.size for file in manifest.files.values())


def _read_tokenizers(artefact: Artefact) -> tuple[Tokenizer, Tokenizer]:
    """Those of what the model reads and of what it writes, which mostly are one."""
    manifest = artefact.manifest
    tokenizer = _read_tokenizer(artefact, TOKENIZER_FILE, source_vocabulary_size(manifest))
    if TARGET_TOKENIZER_FILE not in manifest.files:
        return tokenizer, tokenizer
    return tokenizer, _read_tokenizer(artefact, TARGET_TOKENIZER_FILE, manifest.vocabulary_size)


def _read_tokenizer(artefact: Artefact, file: str, most: int) -> Tokenizer:
    """A tokenizer of the artefact; the model has so many ids."""
    try:
        tokenizer = Tokenizer(artefact.files[file][:], most)
    except Exception as error:
        raise ArtefactError(f"{artefact.directory}: {file} is broken: {error}") from None
    if tokenizer.vocabulary_size > most:
        raise ArtefactError(
            f"{artefact.directory}: {file} has ids up to {tokenizer.vocabulary_size - 1}, but the "
            f"model ends at {most - 1}: it belongs to another model"
        )
    return tokenizer


def _read_chat_template(artefact: Artefact) -> ChatTemplate | None:
    template = artefact.manifest.chat_template
    if template is None:
        return None
    try:
        return ChatTemplate(template, artefact.manifest.chat_tokens)
    except ValueError as error:
        raise ArtefactError(f"{artefact.directory}: {error}") from None
