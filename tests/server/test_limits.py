"""Sizing of queue and cache, without a model."""

from __future__ import annotations

from pathlib import Path

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
    available_memory,
    bytes_per_position,
    decoder_limits,
    encoder_limits,
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


def test_a_position_weighs_its_keys_and_values_in_every_layer() -> None:
    assert bytes_per_position(decoder_manifest(2)) == 2 * 2 * 3 * 8 * 4
    assert bytes_per_position(decoder_manifest(2, device=Device.CUDA)) == 2 * 2 * 3 * 8 * 2


def test_capacity_is_what_the_cache_bytes_hold_in_whole_chunks() -> None:
    manifest = decoder_manifest()
    limits = decoder_limits(manifest, 384 * 4 * 200, slots=4)
    assert limits.capacity == 192  # 200 positions, rounded down to chunks of 64
    assert limits.max_queue_tokens == 64 * 192


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
    manifests = {"small": decoder_manifest(2), "large": decoder_manifest(6)}
    assert share_cache_bytes(800, manifests) == {"small": 200, "large": 600}


def test_available_memory_is_the_machines_where_no_cgroup_limits(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 1000 kB\n")
    assert available_memory(tmp_path) == 1000 * 1024


def test_available_memory_is_the_least_that_any_cgroup_leaves(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemAvailable: 1000 kB\n")
    _write(tmp_path / "proc/self/cgroup", "0::/pod/container\n")
    pod = tmp_path / "sys/fs/cgroup/pod"
    _write_group(pod, limit="90000", used=80000, inactive_file=5000)
    _write_group(pod / "container", limit="max", used=1, inactive_file=0)
    assert available_memory(tmp_path) == 15000


def test_available_memory_is_never_negative(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemAvailable: 1000 kB\n")
    _write(tmp_path / "proc/self/cgroup", "0::/\n")
    _write_group(tmp_path / "sys/fs/cgroup", limit="100", used=300, inactive_file=10)
    assert available_memory(tmp_path) == 0


def test_available_memory_of_this_machine_is_positive() -> None:
    assert available_memory() > MEBIBYTE


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _write_group(group: Path, *, limit: str, used: int, inactive_file: int) -> None:
    _write(group / "memory.max", limit)
    _write(group / "memory.current", str(used))
    _write(group / "memory.stat", f"anon 1\ninactive_file {inactive_file}\n")
