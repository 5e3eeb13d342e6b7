"""Recipes: which precisions a device has, and what each makes of a model's weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from export.manifest import Device, Manifest, ManifestError, Precision
from export.parity import Tolerance
from export.quantiser import Quantiser
from model.config import Kind


class RecipeError(ValueError):
    """A precision that a device or a kind of model does not have; the message names both."""


@dataclass(frozen=True)
class Recipe:
    """What a precision on a device is.

    Attributes:
        kinds: the kinds of model that it is for.
        dtype: of the weights while they are traced, and of the cache.
        quantiser: stores the traced weights in few bits; None where they stay as they are.
        tolerance: how far the graphs' numbers may be from those of PyTorch in fp32, with the very
            weights that the graphs hold.
    """

    device: Device
    precision: Precision
    kinds: frozenset[Kind]
    tolerance: Tolerance
    dtype: torch.dtype = torch.float32
    quantiser: Quantiser | None = None

    @property
    def number(self) -> str:
        """`dtype` as numpy spells it."""
        return str(self.dtype).removeprefix("torch.")

    def check_kind(self, kind: Kind) -> None:
        """Refuses a kind of model that it is not for.

        Raises:
            RecipeError: naming precision and kind.
        """
        if kind not in self.kinds:
            raise RecipeError(
                f"--precision {self.precision} is for {_list(self.kinds)}; this is {kind}"
            )


def find_recipe(device: Device, precision: Precision) -> Recipe:
    """The recipe of a precision on a device.

    Raises:
        RecipeError: there is none; the message names both, and what the device has.
    """
    if (recipe := _RECIPES.get((device, precision))) is not None:
        return recipe
    offered = [precision for other, precision in _RECIPES if other is device]
    raise RecipeError(
        f"--precision {precision} with --device {device} is not supported; "
        + (f"{device} has {', '.join(offered)}" if offered else f"nothing is for {device} yet")
    )


def recipe_of(manifest: Manifest) -> Recipe:
    """The recipe that an artefact was made by.

    Raises:
        ManifestError: it says a precision that its device does not have.
    """
    try:
        return find_recipe(manifest.device, manifest.precision)
    except RecipeError as error:
        raise ManifestError(str(error)) from None


def _list(kinds: frozenset[Kind]) -> str:
    return " and ".join(sorted(kinds))


_EVERY_KIND = frozenset({Kind.ENCODER, Kind.DECODER})

_RECIPES = {
    (recipe.device, recipe.precision): recipe
    for recipe in (Recipe(Device.CPU, Precision.FP32, _EVERY_KIND, Tolerance(1e-4)),)
}
