"""inspect: what is said of an encoder-decoder; test_verify.py has the other kinds."""

from __future__ import annotations

from collections import defaultdict
from io import StringIO

from rich.console import Console

from export.artefact import Artefact
from export.inspection import inspect_artefact, render
from tests.artefacts import encoder_decoder_artefact
from tests.checkpoints import ENCODER_DECODER, random_tensors


def test_an_encoder_decoder_has_a_cache_for_its_target_and_its_source() -> None:
    inspection = inspect_artefact(Artefact.open(encoder_decoder_artefact()))
    config = ENCODER_DECODER
    layer = 2 * config.kv_heads * config.head_dim * 4  # key and value in fp32
    assert inspection.cache_bytes_per_position == config.decoder_layers * layer
    assert inspection.cache_bytes_per_source_token == config.decoder_layers * layer
    console = Console(width=200, record=True, file=StringIO())
    console.print(render(inspection))
    text = console.export_text()
    assert "1,024 bytes a position, 1,024 bytes a token of the source" in text
    assert "present_cross.*.key" in text


def test_each_parameter_is_in_one_graph_or_shared_by_name() -> None:
    """Keys and values of cross-attention with the encoder, whose tokens they are made of."""
    inspection = inspect_artefact(Artefact.open(encoder_decoder_artefact()))
    graphs = {graph.role: graph for graph in inspection.graphs}
    projection = ENCODER_DECODER.d_model * (ENCODER_DECODER.d_model + 1)
    crossing = 2 * ENCODER_DECODER.decoder_layers * projection
    for role in ("encoder", "decoder"):
        assert graphs[role].parameters_by_part["cross-attention"] == crossing
    shared = ENCODER_DECODER.vocab_size * ENCODER_DECODER.d_model
    tables = 2 * ENCODER_DECODER.max_positions * ENCODER_DECODER.d_model
    tensors = sum(tensor.numel() for tensor in random_tensors(ENCODER_DECODER).values())
    found = graphs["encoder"].parameters + graphs["decoder"].parameters
    assert found == tensors + shared + tables


def test_each_check_names_the_graph_that_it_is_about() -> None:
    """All that a build stores; what a replay of the reference finds is never stored."""
    inspection = inspect_artefact(Artefact.open(encoder_decoder_artefact()))
    files = defaultdict(set)
    for row in inspection.parity:
        files[row.file].add(row.check)
    assert files == {
        "manifest.json": {"content"},
        "encoder.onnx": {
            "weights",
            "embeddings",
            "embeddings alone and batched",
            "embeddings without sources",
            "memory",
            "memory alone and batched",
        },
        "decoder.onnx": {
            "weights",
            "cached decode",
            "sources in their slots",
            "decode",
            "decode alone and batched",
            "decode in a larger slot",
            "greedy tokens",
        },
        "mover.onnx": {"moved row"},
    }
