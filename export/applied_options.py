"""What the options of a build make of a checkpoint: refused where the two do not fit."""

from __future__ import annotations

from dataclasses import replace

from export.build_options import BuildError, BuildOptions
from export.draft import read_decoding_rules
from export.manifest import Device
from export.recipe import find_recipe
from model.checkpoint import Checkpoint
from model.config import Kind, Pooling, PoolingMode, Positions, TransformerConfig


def apply_options(checkpoint: Checkpoint, options: BuildOptions) -> Checkpoint:
    """The checkpoint with what the options change.

    Raises:
        BuildError: an option does not fit the kind of the model, or one is needed.
        CheckpointError: its generation settings ask for what formerd does not do.
        PrecisionError: the precision is not for the kind of the model.
    """
    config = checkpoint.config
    read_decoding_rules(checkpoint)  # before anything is traced
    find_recipe(options.device, options.precision).check_kind(config.kind)
    if options.max_length is not None and not 0 < options.max_length <= config.max_positions:
        raise BuildError(
            f"--max-length {options.max_length}; the model takes 1 to {config.max_positions} tokens"
        )
    pooling = _choose_pooling(checkpoint, options.pooling)
    if options.device is Device.CUDA:
        _check_cuda(config, pooling)
    return replace(checkpoint, pooling=pooling)


def _choose_pooling(checkpoint: Checkpoint, mode: PoolingMode | None) -> Pooling | None:
    """The checkpoint's own unless the option says otherwise; None where nothing is pooled."""
    kind, stated = checkpoint.config.kind, checkpoint.pooling
    if kind is Kind.DECODER:
        if mode is not None:
            raise BuildError(f"--pooling {mode} is for encoders; this is a decoder")
        return None
    if mode is not None:
        return Pooling(mode, normalize=stated is not None and stated.normalize)
    if stated is not None:
        return stated
    if kind is Kind.ENCODER_DECODER:
        return Pooling(PoolingMode.MEAN, normalize=False)  # which nobody trained it for
    modes = ", ".join(PoolingMode)
    raise BuildError(f"the checkpoint does not say how to pool; add --pooling: {modes}")


def _check_cuda(config: TransformerConfig, pooling: Pooling | None) -> None:
    if config.positions is Positions.RELATIVE:
        raise BuildError(
            f"positions {config.positions} with --device cuda: no GPU has verified attention with "
            "a bias of distances; build it for cpu"
        )
    if pooling is not None and pooling.mode is PoolingMode.MAX:
        raise BuildError(
            f"pooling {pooling.mode} with --device cuda: the operator needs cuDNN, which the "
            "server keeps out; build it for cpu"
        )
