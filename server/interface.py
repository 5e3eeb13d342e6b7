"""What the server binds: the inputs and outputs that the graphs of an artefact must have."""

from __future__ import annotations

from dataclasses import replace

from export.manifest import Device, GraphSpec, Manifest, ManifestError, TensorSpec

CACHE_DTYPES = {Device.CPU: ("float32", "float16"), Device.CUDA: ("float16",)}
HALVES = ("key", "value")
MOVER_NUMBERS = ("source_start", "source_end", "destination_start")
MEMORY_MAP = "memory_map"  # the sources that a decoder is to read: as `pad_map`, or [0, 0] for none


def expected_graphs(manifest: Manifest) -> dict[str, GraphSpec]:
    """The graphs that a kind of model must have, by role; file names are not compared.

    Raises:
        ManifestError: the kind is none that this server runs, or the cache has a dtype that it
            cannot bind.
    """
    if manifest.kind == "encoder":
        return {"encoder": _encoder(manifest)}
    if manifest.kind == "decoder":
        return {"decoder": _decoder(manifest), "mover": _mover(manifest)}
    if manifest.kind == "encoder_decoder":
        return {
            "encoder": _source_encoder(manifest),
            "decoder": _target_decoder(manifest),
            "mover": _mover(manifest),
        }
    raise ManifestError(
        f"kind is {manifest.kind!r}; this server runs encoder, decoder and encoder_decoder"
    )


def source_vocabulary_size(manifest: Manifest) -> int:
    """How many ids the model can read; it may write others.

    Raises:
        ManifestError: an encoder-decoder whose configuration does not say so.
    """
    if manifest.kind != "encoder_decoder":
        return manifest.vocabulary_size
    return _size(manifest, "vocab_size")


def cache_names(manifest: Manifest) -> tuple[str, ...]:
    """`{layer}.key` and `{layer}.value` of every layer of the decoder."""
    layers = _size(manifest, "decoder_layers")
    return tuple(f"{layer}.{half}" for layer in range(layers) for half in HALVES)


def _encoder(manifest: Manifest) -> GraphSpec:
    if manifest.pooling is None:
        raise ManifestError("an encoder needs a pooling, and the manifest gives none")
    return GraphSpec(
        file="",
        weights=(),
        inputs=(
            TensorSpec("input_ids", "int64", ("tokens",)),
            TensorSpec("positions", "int64", ("tokens",)),
            TensorSpec("pad_map", "int64", ("batch", "longest")),
            TensorSpec("unpad_map", "int64", ("tokens",)),
            TensorSpec("lengths", "int64", ("batch",)),
        ),
        outputs=(TensorSpec("embeddings", "float32", ("batch", manifest.pooling.dimensions)),),
    )


def _decoder(manifest: Manifest) -> GraphSpec:
    logits = TensorSpec("logits", "float32", ("logits", manifest.vocabulary_size))
    return GraphSpec(
        file="",
        weights=(),
        inputs=(
            TensorSpec("input_ids", "int64", ("batch", "sequence")),
            TensorSpec("past_lengths", "int32", ("batch",)),
            TensorSpec("total_sequence_length", "int32", (1,)),
            TensorSpec("logit_positions", "int64", ("logits",)),
            *_caches(manifest, "past", "batch"),
        ),
        outputs=(logits, *_caches(manifest, "present", "batch")),
    )


def _source_encoder(manifest: Manifest) -> GraphSpec:
    """An encoder that gives what a decoder reads of its sources, too."""
    encoder = _encoder(manifest)
    memory_map = TensorSpec(MEMORY_MAP, "int64", ("sources", "longest_source"))
    cross = _caches(manifest, "cross", "sources", "longest_source")
    return replace(
        encoder,
        inputs=(*encoder.inputs, memory_map),
        outputs=(*encoder.outputs, *cross),
    )


def _target_decoder(manifest: Manifest) -> GraphSpec:
    """A decoder that takes one token a row and reads a source beside its cache."""
    decoder = _decoder(manifest)
    ids, lengths, total, logit_positions, *past = decoder.inputs
    return replace(
        decoder,
        inputs=(
            replace(ids, shape=("batch", 1)),
            *(lengths, total, logit_positions),
            TensorSpec("source_lengths", "int32", ("batch",)),
            TensorSpec("total_source_length", "int32", (1,)),
            *past,
            *_caches(manifest, "cross", "batch", "source_capacity"),
        ),
        outputs=(
            *decoder.outputs,
            *_caches(manifest, "present_cross", "batch", "source_capacity"),
        ),
    )


def _mover(manifest: Manifest) -> GraphSpec:
    return GraphSpec(
        file="",
        weights=(),
        inputs=(
            *(TensorSpec(name, "int64", (1,)) for name in MOVER_NUMBERS),
            *_caches(manifest, "source", 1, "source_capacity"),
            *_caches(manifest, "destination", 1),
        ),
        outputs=_caches(manifest, "moved", 1),
    )


def _caches(
    manifest: Manifest, part: str, rows: int | str, positions: str = "capacity"
) -> tuple[TensorSpec, ...]:
    shape = (rows, _size(manifest, "kv_heads"), positions, _size(manifest, "head_dim"))
    dtype = _cache_dtype(manifest)
    return tuple(TensorSpec(f"{part}.{cache}", dtype, shape) for cache in cache_names(manifest))


def _cache_dtype(manifest: Manifest) -> str:
    """The dtype that the decoder declares for its cache."""
    decoder = manifest.graphs.get("decoder")
    declared = {spec.name: spec for spec in decoder.inputs} if decoder else {}
    if (spec := declared.get("past.0.key")) is None:
        raise ManifestError("the manifest declares no decoder with an input past.0.key")
    if spec.dtype not in CACHE_DTYPES[manifest.device]:
        raise ManifestError(
            f"the cache is {spec.dtype}; on {manifest.device} it must be "
            f"{' or '.join(CACHE_DTYPES[manifest.device])}"
        )
    return spec.dtype


def _size(manifest: Manifest, name: str) -> int:
    value = manifest.config.get(name)
    if not isinstance(value, int) or value < 1:
        raise ManifestError(f"config.{name} is {value!r}; a decoder needs a number from 1")
    return value
