"""Graphs of tiny random models beside the models that they came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort
import pytest

from export.artefact import Artefact
from export.decoder_graph import decoder_graph
from export.decoder_run import DecoderRun, MoverRun
from export.encoder_graph import encoder_graph
from export.graph import write_graph
from export.manifest import Device, GraphSpec, load_manifest
from export.mover_graph import write_mover_graph
from export.session import open_session
from export.session_settings import session_settings
from model.checkpoint import Checkpoint
from model.config import Pooling, TransformerConfig
from model.transformer import Transformer
from tests.artefacts import decoder_artefact, encoder_artefact, standard_decoder_artefact
from tests.checkpoints import DECODER, ENCODER, tiny_checkpoint

SETTINGS = session_settings(Device.CPU)
BATCHES, LENGTHS = (1, 2, 3, 7, 32), (1, 2, 3, 17, 128, 129, 256, 500)
# Batch and length; the largest in the full run only.
SHAPES = [
    pytest.param(batch, length, marks=[pytest.mark.full] if batch * length > 4000 else [])
    for batch in BATCHES
    for length in LENGTHS
]


@dataclass(frozen=True)
class EncoderPair:
    """An encoder in PyTorch and as a graph."""

    model: Transformer
    pooling: Pooling
    session: ort.InferenceSession


@dataclass(frozen=True)
class DecoderPair:
    """A decoder in PyTorch and as graphs."""

    model: Transformer
    session: ort.InferenceSession
    graph: GraphSpec
    mover: MoverRun

    def run(self, slots: int, capacity: int) -> DecoderRun:
        return DecoderRun(self.session, self.graph, slots, capacity)


def open_graph(directory: Path, spec: GraphSpec) -> ort.InferenceSession:
    """A session on a graph that no manifest describes."""
    files = {name: (directory / name).read_bytes() for name in (spec.file, *spec.weights)}
    return open_session(spec, files, SETTINGS)


def encoder_pair(config: TransformerConfig, pooling: Pooling, directory: Path) -> EncoderPair:
    """Writes the graph to `directory`; every parameter is random."""
    checkpoint = tiny_checkpoint(config)
    spec = write_graph(encoder_graph(checkpoint.build(), pooling), directory)
    return EncoderPair(checkpoint.build(), pooling, open_graph(directory, spec))


def decoder_pair(
    config: TransformerConfig, directory: Path, *, standard_ops: bool = False
) -> DecoderPair:
    """Writes the graphs to `directory`; every parameter is random."""
    checkpoint = tiny_checkpoint(config)
    spec = write_graph(decoder_graph(checkpoint.build(), standard_ops=standard_ops), directory)
    mover = write_mover_graph(config, "float32", directory)
    return _open_decoder(checkpoint, directory, spec, mover)


def tiny_encoder_pair() -> EncoderPair:
    """That of `tiny-encoder`; writing a graph costs seconds."""
    checkpoint = tiny_checkpoint(ENCODER)
    assert checkpoint.pooling is not None
    session = Artefact.open(encoder_artefact()).session("encoder")
    return EncoderPair(checkpoint.build(), checkpoint.pooling, session)


def tiny_decoder_pair(*, standard_ops: bool = False) -> DecoderPair:
    """That of `tiny-decoder`, or of `tiny-standard-decoder`."""
    artefact = standard_decoder_artefact() if standard_ops else decoder_artefact()
    graphs = load_manifest(artefact).graphs
    return _open_decoder(tiny_checkpoint(DECODER), artefact, graphs["decoder"], graphs["mover"])


def _open_decoder(
    checkpoint: Checkpoint, directory: Path, spec: GraphSpec, mover: GraphSpec
) -> DecoderPair:
    return DecoderPair(
        checkpoint.build(),
        open_graph(directory, spec),
        spec,
        MoverRun(open_graph(directory, mover)),
    )
