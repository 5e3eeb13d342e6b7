"""What is written from a checkpoint: the graphs, the tokenizers and the draft of the manifest."""

from __future__ import annotations

from pathlib import Path

from export.applied_options import apply_options
from export.artefact_files import describe_files
from export.build_options import BuildOptions
from export.decoder_graph import decoder_graph
from export.draft import draft_manifest
from export.encoder_graph import encoder_graph
from export.graph import write_graph
from export.manifest import TARGET_TOKENIZER_FILE, TOKENIZER_FILE, GraphSpec, Manifest
from export.mover_graph import write_mover_graph
from export.progress import Steps
from export.recipe import Recipe, find_recipe
from export.target_decoder_graph import target_decoder_graph
from export.writing_task import WritingTask
from model.checkpoint import Checkpoint
from model.checkpoints import load_checkpoint


def write_draft(task: WritingTask, steps: Steps) -> Manifest:
    """Writes everything that comes from the checkpoint; the draft of the manifest.

    Raises:
        CheckpointError: the checkpoint cannot be used.
        ExportError: a graph cannot be written.
        BuildError, PrecisionError: as `apply_options`.
    """
    options, directory = task.options, task.directory
    recipe = find_recipe(options.device, options.precision)
    steps.advance("reading the checkpoint")
    checkpoint = apply_options(load_checkpoint(task.source.path), options)
    steps.advance("tracing the graphs")
    (directory / TOKENIZER_FILE).write_bytes(checkpoint.tokenizer_json)
    if checkpoint.target_tokenizer_json is not None:
        (directory / TARGET_TOKENIZER_FILE).write_bytes(checkpoint.target_tokenizer_json)
    graphs = _write_graphs(checkpoint, recipe, options, directory)
    return draft_manifest(
        checkpoint,
        name=options.name,
        recipe=recipe,
        source=task.source.describe(),
        graphs=graphs,
        files=describe_files(directory),
        tolerance=options.tolerance or recipe.tolerance.value,
        max_length=options.max_length,
    )


def _write_graphs(
    checkpoint: Checkpoint, recipe: Recipe, options: BuildOptions, directory: Path
) -> dict[str, GraphSpec]:
    model = checkpoint.build().to(recipe.dtype)
    checkpoint.tensors.clear()  # the model has its own, and they are as large as the checkpoint
    config, graphs = checkpoint.config, {}
    if config.has_encoder:
        assert checkpoint.pooling is not None
        encoder = encoder_graph(model, checkpoint.pooling, recipe.dtype)
        graphs["encoder"] = write_graph(encoder, directory, recipe.quantiser)
    if config.has_decoder:
        source = target_decoder_graph if config.has_encoder else decoder_graph
        decoder = source(model, recipe.dtype, standard_ops=options.standard_ops)
        graphs["decoder"] = write_graph(decoder, directory, recipe.quantiser)
        graphs["mover"] = write_mover_graph(config, recipe.number, directory)
    return graphs
