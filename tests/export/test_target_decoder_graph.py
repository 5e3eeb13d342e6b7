"""The decoder graph of an encoder-decoder: eager PyTorch's logits, sources read in place."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray

from export.artefact import Artefact
from export.decoder_run import DecoderRun
from export.encoder_checks import run_encoder
from export.encoder_graph import encoder_graph
from export.graph import ExportError, write_graph
from export.manifest import GraphSpec
from export.packing import pack, with_memory, without_memory
from export.source_checks import remember_sources
from export.source_run import encode_sources
from export.target_decoder_graph import target_decoder_graph
from model.config import (
    Activation,
    Norm,
    NormPlacement,
    Pooling,
    PoolingMode,
    Positions,
    TransformerConfig,
)
from model.generate import logits
from model.transformer import Transformer
from tests.artefacts import encoder_decoder_artefact
from tests.checkpoints import ENCODER_DECODER, RELATIVE_ENCODER_DECODER, tiny_checkpoint
from tests.export.graphs import open_graph

_SOURCE_LENGTHS = (3, 1, 40, 17)
_TARGET = 12  # tokens
_CAPACITY, _SOURCE_CAPACITY = 16, 64
# Tracing takes time by the layer; what the layers of a stack share, one of them shows.
_SMALL = replace(ENCODER_DECODER, encoder_layers=1, decoder_layers=1)
_RELATIVE = replace(RELATIVE_ENCODER_DECODER, encoder_layers=1, decoder_layers=1)
_VARIANTS = {
    "rotary, grouped, pre-norm, two vocabularies": (
        replace(
            _SMALL,
            target_vocab_size=100,
            kv_heads=2,
            positions=Positions.ROTARY,
            norm=Norm.RMS,
            norm_placement=NormPlacement.PRE,
            final_norm=True,
            activation=Activation.SILU,
            gated=True,
            tied_head=True,
            head_bias=False,
        ),
        False,
    ),
    "relative, in standard operators": (_RELATIVE, True),
    "learned, narrow heads": (
        replace(
            _SMALL,
            head_dim=8,
            positions=Positions.LEARNED,
            position_offset=2,
            embedding_norm=True,
            activation=Activation.GELU,
        ),
        False,
    ),
    "rotary, in standard operators": (
        replace(_SMALL, positions=Positions.ROTARY, heads=8, kv_heads=2, head_dim=6),
        True,
    ),
}
# BART's build is like the third; the fourth adds one operator to the second.
_PARAMETERS = [
    pytest.param(name, marks=[] if place < 2 else [pytest.mark.full])
    for place, name in enumerate(_VARIANTS)
]


@dataclass(frozen=True)
class _Pair:
    """An encoder-decoder in PyTorch and as graphs."""

    model: Transformer
    encoder: ort.InferenceSession
    decoder: ort.InferenceSession
    graph: GraphSpec

    def run(self, sources: list[NDArray[np.int64]], unwritten: float = np.nan) -> DecoderRun:
        """A slot for each source, which holds it; everything else is `unwritten`."""
        run = DecoderRun(
            self.decoder, self.graph, len(sources), _CAPACITY, source_capacity=_SOURCE_CAPACITY
        )
        for half in (*run.caches.values(), *run.cross.values()):
            half.fill(unwritten)
        encoded = encode_sources(self.encoder, sources)
        for slot, source in enumerate(sources):
            run.read_source(slot, encoded, slot, len(source))
        return run

    def wanted(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.float32]:
        """PyTorch's logits after each token of a target."""
        memory = remember_sources(self.model, [source])
        found = logits(self.model, torch.from_numpy(target[None]), source=memory)[0]
        return np.asarray(found[0].numpy())


def _pair(config: TransformerConfig, directory: Path, *, standard_ops: bool) -> _Pair:
    checkpoint = tiny_checkpoint(config)
    model, pooling = checkpoint.build(), Pooling(PoolingMode.MEAN, normalize=False)
    encoder = write_graph(encoder_graph(model, pooling), directory)
    decoder = write_graph(target_decoder_graph(model, standard_ops=standard_ops), directory)
    sessions = open_graph(directory, encoder), open_graph(directory, decoder)
    return _Pair(checkpoint.build(), *sessions, decoder)


@cache
def _tiny_pair() -> _Pair:
    """That of `tiny-encoder-decoder`; writing graphs costs seconds."""
    artefact = Artefact.open(encoder_decoder_artefact())
    sessions = artefact.session("encoder"), artefact.session("decoder")
    model = tiny_checkpoint(ENCODER_DECODER).build()
    return _Pair(model, *sessions, artefact.manifest.graphs["decoder"])


@pytest.mark.parametrize("variant", _PARAMETERS)
def test_every_variant_agrees_token_by_token(variant: str, tmp_path: Path) -> None:
    """Nor does any byte of the sources' keys and values change."""
    config, standard_ops = _VARIANTS[variant]
    pair = _pair(config, tmp_path, standard_ops=standard_ops)
    sources, targets = _sources(config.vocab_size), _targets(config.decoder_vocab_size)
    run = pair.run(sources)
    before = {name: half.tobytes() for name, half in run.cross.items()}
    rows = range(len(sources))
    found = [run.step(targets[:, [past]], [past] * len(rows)) for past in range(_TARGET)]
    for row in rows:
        wanted = pair.wanted(sources[row], targets[row])
        together = np.stack([step[row] for step in found])
        np.testing.assert_allclose(together, wanted, rtol=0, atol=2e-5)
        alone = run.step(targets[[row], -1:], [_TARGET - 1], first_slot=row)
        np.testing.assert_array_equal(alone[0], together[-1])
    assert before == {name: half.tobytes() for name, half in run.cross.items()}
    model = onnx.load(tmp_path / pair.graph.file, load_external_data=False)
    foreign = {node.op_type for node in model.graph.node if node.domain}
    assert foreign == (set() if standard_ops else {"GroupQueryAttention"})


def test_logits_of_some_rows_or_of_none() -> None:
    pair = _tiny_pair()
    sources, targets = _sources(), _targets()
    run = pair.run(sources)
    everything = run.step(targets[:, :1], [0] * 4)
    some = run.step(targets[:, :1], [0] * 4, logit_positions=[3, 1])
    np.testing.assert_array_equal(some, everything[[3, 1]])
    none = run.step(targets[:, :1], [0] * 4, logit_positions=())
    assert none.shape == (0, ENCODER_DECODER.vocab_size)
    wanted = [
        pair.wanted(source, target[:2])[1] for source, target in zip(sources, targets, strict=True)
    ]
    np.testing.assert_allclose(run.step(targets[:, 1:2], [1] * 4), wanted, rtol=0, atol=2e-5)


def test_a_source_may_fill_its_slot() -> None:
    pair = _tiny_pair()
    sources = _sources(lengths=(_SOURCE_CAPACITY, 2, _SOURCE_CAPACITY))
    targets = _targets()[:3]
    found = pair.run(sources).step(targets[:, :1], [0] * 3)
    for row, source in enumerate(sources):
        wanted = pair.wanted(source, targets[row, :1])[0]
        np.testing.assert_allclose(found[row], wanted, rtol=0, atol=2e-5)


def test_a_source_that_is_not_finite_spoils_no_other() -> None:
    pair = _tiny_pair()
    sources, tokens = _sources(), _targets()[:, :1]
    wanted = pair.run(sources).step(tokens, [0] * 4)
    run = pair.run(sources)
    for half in run.cross.values():
        half[2] = np.inf
    found = run.step(tokens, [0] * 4)
    assert not np.isfinite(found[2]).any()
    np.testing.assert_array_equal(np.delete(found, 2, 0), np.delete(wanted, 2, 0))


def test_more_than_one_token_a_row_is_refused() -> None:
    with pytest.raises(Exception, match=r"invalid dimensions.*input_ids"):
        _tiny_pair().run(_sources()).step(_targets()[:, :2], [0] * 4)


def test_an_embedding_pays_for_no_cross_attention(tmp_path: Path) -> None:
    """Whoever asks for embeddings alone has no token projected, and gets the same ones."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    path = encoder_decoder_artefact() / "encoder.onnx"
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    packed = pack(_sources())
    embeddings, *nothing = session.run(None, without_memory(packed))
    assert {half.size for half in nothing} == {0}
    events = [
        each.get("args", {}) for each in json.loads(Path(session.end_profiling()).read_text())
    ]
    products = [each["output_size"] for each in events if each.get("op_name") == "MatMul"]
    assert products.count("0") == 2 * ENCODER_DECODER.decoder_layers
    with_memories = _tiny_pair().encoder.run(["embeddings"], with_memory(packed))[0]
    np.testing.assert_array_equal(with_memories, run_encoder(_tiny_pair().encoder, _sources()))
    np.testing.assert_allclose(embeddings, with_memories, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("head_dim", "positions"), [(12, Positions.SINUSOIDAL), (8, Positions.ROTARY)]
)
def test_refuses_heads_that_the_operator_cannot_do(head_dim: int, positions: Positions) -> None:
    config = replace(ENCODER_DECODER, head_dim=head_dim, positions=positions)
    with pytest.raises(ExportError, match=f"head_dim {head_dim} with positions {positions}"):
        target_decoder_graph(Transformer(config))


def _sources(
    vocab_size: int = ENCODER_DECODER.vocab_size, lengths: tuple[int, ...] = _SOURCE_LENGTHS
) -> list[NDArray[np.int64]]:
    generator = np.random.default_rng(1)
    return [generator.integers(0, vocab_size, length) for length in lengths]


def _targets(vocab_size: int = ENCODER_DECODER.vocab_size) -> NDArray[np.int64]:
    return np.random.default_rng(2).integers(0, vocab_size, (len(_SOURCE_LENGTHS), _TARGET))
