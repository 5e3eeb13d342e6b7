"""A model with the numbers that a graph of less precision computes with."""

from __future__ import annotations

import torch

from export.recipe import Recipe
from model.transformer import Transformer


@torch.no_grad()
def hold_weights(model: Transformer, recipe: Recipe) -> None:
    """Rounds a model's weights, in place, to what they are in a graph of the recipe.

    What the graph then computes otherwise is its own, and not the weights'.
    """
    model.to(recipe.dtype).float()
    if recipe.quantiser is None:
        return
    for name, parameter in model.named_parameters():
        quantised = recipe.quantiser.encode(name, parameter.detach().numpy())
        if quantised is not None:
            parameter.copy_(torch.from_numpy(quantised.restored))
