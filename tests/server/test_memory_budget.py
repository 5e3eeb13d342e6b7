"""What a server says that it will take, and when that is too much."""

from __future__ import annotations

from dataclasses import replace

import pytest

from export.manifest import Device, FileSpec, Manifest
from server.limits import (
    LimitError,
    bytes_per_position,
    bytes_per_source_token,
    decoder_limits,
    encoder_limits,
)
from server.memory_budget import MemoryBudget, ModelMemory, allowed_memory, process_memory
from tests.server.manifests import encoder_manifest
from tests.server.test_limits import decoder_manifest, encoder_decoder_manifest

SIZES = {"d_model": 32, "d_ff": 64, "heads": 4}


def sized(manifest: Manifest) -> Manifest:
    return replace(
        manifest, config=SIZES, files={file: FileSpec(5000, "00") for file in manifest.files}
    )


def test_a_decoder_takes_its_slots_and_kept_chunks() -> None:
    manifest = sized(decoder_manifest())
    each = bytes_per_position(manifest)
    limits = decoder_limits(
        manifest, 4 * 200 * each, prefix_cache_bytes=3 * 64 * each, slots=4, prefill_chunk=64
    )
    memory = ModelMemory.of(manifest, None, limits)
    assert memory.weights == 5000
    assert memory.cache == 4 * 192 * each
    assert memory.prefix_cache == 3 * 64 * each
    assert memory.working > 64 * manifest.vocabulary_size * 4


def test_an_encoder_decoder_takes_its_slots_kept_sources_and_a_batch_of_them() -> None:
    manifest = sized(encoder_decoder_manifest())
    each, of_source = bytes_per_position(manifest), bytes_per_source_token(manifest)
    kept = 5 * 16 * of_source
    limits, longer = (
        decoder_limits(manifest, 4 << 20, prefix_cache_bytes=kept, slots=4, max_length=length)
        for length in (200, 400)
    )
    memory = ModelMemory.of(manifest, None, limits)
    assert memory.cache == 4 * 200 * (each + of_source)
    assert memory.prefix_cache == kept
    assert memory.working > 200 * of_source
    more = ModelMemory.of(manifest, None, longer).working - memory.working
    assert more > 200 * of_source, "a source is encoded whole"


def test_engines_that_run_at_once_need_room_for_both() -> None:
    manifest = sized(encoder_decoder_manifest())
    encoder = encoder_limits(manifest, max_batch_tokens=100)
    decoder = decoder_limits(manifest, 4 << 20, slots=4)
    both, embedding, generating = (
        ModelMemory.of(manifest, *limits).working
        for limits in ((encoder, decoder), (encoder, None), (None, decoder))
    )
    assert both == embedding + generating > max(embedding, generating) > 0


def test_an_encoder_works_in_proportion_to_its_batch() -> None:
    manifest = sized(encoder_manifest())
    small, large = (
        ModelMemory.of(manifest, encoder_limits(manifest, max_batch_tokens=tokens), None).working
        for tokens in (100, 1000)
    )
    assert large == 10 * small > 0


def test_what_lies_on_another_device_is_not_counted() -> None:
    manifest = sized(decoder_manifest(device=Device.CUDA))
    limits = decoder_limits(manifest, 10**6, prefix_cache_bytes=10**6, slots=1)
    assert ModelMemory.of(manifest, None, limits) == ModelMemory(weights=5000)


def test_a_budget_is_all_models_and_the_process() -> None:
    budget = MemoryBudget.of([ModelMemory(1, 2, 3, 4), ModelMemory(10, 20, 30, 40)])
    assert budget.process > 1 << 20
    serving = budget.working - 44
    assert serving > 0
    assert budget.total == budget.process + serving + 110
    budget.check(budget.total)
    with pytest.raises(LimitError, match=r"weights 11, cache 22, .* lower --cache-bytes"):
        budget.check(budget.total - 1)


def test_allowed_is_the_limit_or_what_there_is() -> None:
    assert allowed_memory(1000) == 1000
    assert allowed_memory(None) > process_memory()
    assert allowed_memory(1 << 60) < 1 << 60
