"""A model with the numbers that a graph of less precision computes with."""

from __future__ import annotations

import torch

from export.artefact import Artefact
from export.recipe import recipe_of
from model.transformer import Transformer


@torch.no_grad()
def hold_weights(model: Transformer, artefact: Artefact) -> None:
    """Gives a model, in place, the weights that the artefact's graphs hold.

    What the graphs then compute otherwise is their own doing, and not the weights'.
    """
    recipe = recipe_of(artefact.manifest)
    model.to(recipe.dtype).float()
    if recipe.quantiser is None:
        return
    parameters = dict(model.named_parameters())
    for role in artefact.manifest.graphs:
        for held in recipe.quantiser.read(artefact.graph(role)):
            parameters[held.name].copy_(torch.from_numpy(held.weight.restored))
