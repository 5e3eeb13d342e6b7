"""Sizing of queue and cache, without a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from export.manifest import (
    Device,
    FileSpec,
    GraphSpec,
    Limits,
    Manifest,
    ParitySummary,
    Precision,
    SourceSpec,
    Task,
    TensorSpec,
)
from server.errors import InputTooLong, InvalidInput
from server.limits import (
    LimitError,
    bytes_per_position,
    decoder_limits,
    encoder_limits,
    kept_bytes,
    share_cache_bytes,
)

MEBIBYTE = 1 << 20


def decoder_manifest(layers: int = 2, *, device: Device = Device.CPU) -> Manifest:
    """3 key/value heads of width 8: 192 bytes a layer and position in fp32, 96 in fp16."""
    dtype = "float32" if device is Device.CPU else "float16"
    cache = tuple(
        TensorSpec(f"past.{layer}.{part}", dtype, ("batch", 3, "capacity", 8))
        for layer in range(layers)
        for part in ("key", "value")
    )
    ids = TensorSpec("input_ids", "int64", ("batch", "sequence"))
    return Manifest(
        name="tiny",
        kind="decoder",
        task=(Task.GENERATE,),
        config={},
        vocabulary_size=32,
        graphs={"decoder": GraphSpec("decoder.onnx", (), (ids, *cache), ())},
        limits=Limits(max_input=1000, max_positions=1000),
        precision=Precision.FP32,
        device=device,
        opset=24,
        tools={},
        source=SourceSpec("directory", "tiny", None, {}),
        verified_on=(Device.CPU,),
        parity=ParitySummary(1, 0.0, 1e-4),
        files={"decoder.onnx": FileSpec(1, "00")},
    )


def encoder_decoder_manifest() -> Manifest:
    """4 layers, of which 2 read a source: more of one than of the other shows which is meant."""
    manifest = decoder_manifest(4)
    decoder = manifest.graphs["decoder"]
    cross = tuple(
        TensorSpec(f"cross.{layer}.{part}", "float32", ("batch", 3, "source_capacity", 8))
        for layer in range(2)
        for part in ("key", "value")
    )
    graphs = {"decoder": replace(decoder, inputs=(*decoder.inputs, *cross))}
    return replace(manifest, kind="encoder_decoder", graphs=graphs)


def test_a_position_weighs_its_keys_and_values_in_every_layer() -> None:
    assert bytes_per_position(decoder_manifest(2)) == 2 * 2 * 3 * 8 * 4
    assert bytes_per_position(decoder_manifest(2, device=Device.CUDA)) == 2 * 2 * 3 * 8 * 2


def test_capacity_is_what_the_cache_bytes_hold_in_whole_chunks() -> None:
    manifest = decoder_manifest()
    limits = decoder_limits(manifest, 384 * 4 * 200, slots=4)
    assert limits.capacity == 192  # 200 positions, rounded down to chunks of 64
    assert limits.max_queue_tokens == 64 * 192


def test_a_slot_has_room_for_a_source_beside_its_positions() -> None:
    """768 bytes a position in 4 layers, 384 a source token in 2."""
    limits = decoder_limits(encoder_decoder_manifest(), 4 * (768 + 384) * 100, slots=4)
    assert (limits.capacity, limits.source_capacity) == (100, 100)
    assert limits.max_queue_tokens == 64 * 200
    assert limits.encoded_at_once == 100


@pytest.mark.parametrize(
    ("max_positions", "max_input", "capacities"),
    [(1000, 60, (120, 60)), (60, 1000, (60, 180)), (30, 40, (30, 40))],
)
def test_what_one_needs_no_more_the_other_gets(
    max_positions: int, max_input: int, capacities: tuple[int, int]
) -> None:
    bounds = Limits(max_input=max_input, max_positions=max_positions)
    manifest = replace(encoder_decoder_manifest(), limits=bounds)
    limits = decoder_limits(manifest, 4 * (120 * 768 + 60 * 384) - 1 + 768, slots=4)
    assert (limits.capacity, limits.source_capacity) == capacities


def test_max_length_bounds_sources_and_targets() -> None:
    limits = decoder_limits(encoder_decoder_manifest(), MEBIBYTE * 1000, max_length=50)
    assert (limits.capacity, limits.source_capacity) == (50, 50)
    assert limits.encoded_at_once == 64, "a batch has as many tokens as a chunk"


def test_encoded_sources_are_kept_within_the_bytes_of_the_prefix_cache() -> None:
    manifest, place = encoder_decoder_manifest(), 16 * 384
    limits = decoder_limits(manifest, MEBIBYTE, prefix_cache_bytes=3 * place - 1)
    assert (limits.cached_chunks, limits.source_places) == (0, 2)
    assert kept_bytes(manifest, limits) == 2 * place
    assert kept_bytes(manifest, decoder_limits(manifest, MEBIBYTE)) == 0


def test_capacity_below_one_chunk_is_not_rounded() -> None:
    assert decoder_limits(decoder_manifest(), 384 * 4 * 50, slots=4).capacity == 50


def test_the_prefix_cache_holds_whole_chunks_beside_the_slots() -> None:
    manifest = decoder_manifest()
    chunk = 64 * bytes_per_position(manifest)
    without = decoder_limits(manifest, MEBIBYTE)
    limits = decoder_limits(manifest, MEBIBYTE, prefix_cache_bytes=3 * chunk - 1)
    assert (without.cached_chunks, limits.cached_chunks) == (0, 2)
    assert limits.capacity == without.capacity


def test_capacity_never_exceeds_the_model_nor_max_length() -> None:
    manifest = decoder_manifest()
    assert decoder_limits(manifest, MEBIBYTE * 1000).capacity == 960
    assert decoder_limits(manifest, MEBIBYTE * 1000, max_length=128).capacity == 128


def test_a_cache_without_room_is_refused_with_the_flag_to_change() -> None:
    with pytest.raises(LimitError, match="raise --cache-bytes or --memory-limit, or lower --slots"):
        decoder_limits(decoder_manifest(), 384 * 16, slots=16)


@pytest.mark.parametrize("manifest", [decoder_manifest(), encoder_decoder_manifest()])
def test_a_length_without_room_is_refused_for_itself(manifest: Manifest) -> None:
    with pytest.raises(LimitError, match=r"tiny: --max-length 1 .*; raise it to 2 at least"):
        decoder_limits(manifest, MEBIBYTE, max_length=1)
    assert decoder_limits(manifest, MEBIBYTE, max_length=2).capacity == 2


def test_defaults_are_those_of_the_device() -> None:
    assert decoder_limits(decoder_manifest(), MEBIBYTE).prefill_chunk == 64
    cuda = decoder_manifest(device=Device.CUDA)
    assert decoder_limits(cuda, MEBIBYTE).prefill_chunk == 512
    assert encoder_limits(decoder_manifest()).max_batch_tokens == 2048
    assert encoder_limits(cuda).max_batch_tokens == 16384
    assert encoder_limits(cuda, max_batch_tokens=7).max_batch_tokens == 7


@pytest.mark.parametrize(
    ("prompt_length", "n", "error", "message"),
    [
        (0, 1, InvalidInput, "prompt has no tokens"),
        (16, 1, InputTooLong, "prompt has 16 tokens; this model takes at most 15"),
        (15, 5, InvalidInput, "n, or beam.width, is 5; it must be from 1 to 4"),
        (15, 0, InvalidInput, "n, or beam.width, is 0; it must be from 1 to 4"),
    ],
)
def test_what_can_never_run_is_refused(
    prompt_length: int, n: int, error: type[Exception], message: str
) -> None:
    limits = decoder_limits(decoder_manifest(), MEBIBYTE, slots=4, max_length=16)
    limits.check(15, 4)
    with pytest.raises(error, match=message):
        limits.check(prompt_length, n)


@pytest.mark.parametrize(
    ("source_length", "prompt_length", "error", "message"),
    [
        (0, 1, InvalidInput, "prompt has no tokens"),
        (17, 1, InputTooLong, "prompt has 17 tokens; this model takes at most 16"),
        (1, 16, InputTooLong, "decoder_prompt has 15 tokens; this model takes at most 14"),
    ],
)
def test_sources_and_targets_that_can_never_run_are_refused(
    source_length: int, prompt_length: int, error: type[Exception], message: str
) -> None:
    limits = decoder_limits(encoder_decoder_manifest(), MEBIBYTE, slots=4, max_length=16)
    limits.check(15, 4, 16)
    with pytest.raises(error, match=message):
        limits.check(prompt_length, 1, source_length)


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        ([], InvalidInput, "inputs is empty"),
        ([3, 0], InvalidInput, r"inputs\[1\] has no tokens"),
        ([3, 5, 1001], InputTooLong, r"inputs\[2\] has 1001 tokens; .* at most 1000"),
    ],
)
def test_texts_that_can_never_be_encoded_are_refused(
    lengths: list[int], error: type[Exception], message: str
) -> None:
    limits = encoder_limits(decoder_manifest())
    limits.check([1, 1000])
    with pytest.raises(error, match=message):
        limits.check(lengths)


def test_cache_bytes_are_divided_as_positions_weigh() -> None:
    manifests = {"small": decoder_manifest(2), "large": encoder_decoder_manifest()}
    assert share_cache_bytes(800, manifests) == {"small": 200, "large": 600}
