"""Recipes: which precisions a device has, and what each makes of a model's weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from export.block_quantiser import BlockQuantiser
from export.embedding_drift import EmbeddingBounds
from export.generation_drift import GenerationBounds
from export.manifest import Device, Manifest, ManifestError, Precision
from export.parity import Tolerance
from export.precisions import PrecisionError, check_precision
from export.quantiser import Quantiser
from export.token_quantiser import TokenQuantiser
from model.config import Kind


@dataclass(frozen=True)
class DriftBounds:
    """How far a graph may be from its checkpoint in fp32, by what it answers."""

    embeddings: EmbeddingBounds
    generation: GenerationBounds | None = None  # of a precision that is for encoders alone


@dataclass(frozen=True)
class Recipe:
    """What a precision on a device is.

    Attributes:
        kinds: the kinds of model that it is for.
        dtype: of the weights while they are traced, and of the cache.
        quantiser: stores the traced weights in few bits; None where they stay as they are.
        drift: how far the graphs may be from the checkpoint in fp32; None where they are in fp32.
        tolerance: how far the graphs' numbers may be from those of PyTorch in fp32, with the very
            weights that the graphs hold.
    """

    device: Device
    precision: Precision
    kinds: frozenset[Kind]
    tolerance: Tolerance
    dtype: torch.dtype = torch.float32
    quantiser: Quantiser | None = None
    drift: DriftBounds | None = None

    @property
    def number(self) -> str:
        """`dtype` as numpy spells it."""
        return str(self.dtype).removeprefix("torch.")

    def check_kind(self, kind: Kind) -> None:
        """Refuses a kind of model that it is not for.

        Raises:
            PrecisionError: naming precision and kind.
        """
        if kind not in self.kinds:
            raise PrecisionError(
                f"--precision {self.precision} is for {_list(self.kinds)}; this is {kind}"
            )


def find_recipe(device: Device, precision: Precision) -> Recipe:
    """The recipe of a precision on a device.

    Raises:
        PrecisionError: as `check_precision`.
    """
    check_precision(device, precision)
    return RECIPES[device, precision]


def offered_precisions(device: Device, kind: Kind) -> list[Precision]:
    """Every precision that a device has for a kind of model."""
    return [
        recipe.precision
        for recipe in RECIPES.values()
        if recipe.device is device and kind in recipe.kinds
    ]


def recipe_of(manifest: Manifest) -> Recipe:
    """The recipe that an artefact was made by.

    Raises:
        ManifestError: it says a precision that its device does not have.
    """
    try:
        return find_recipe(manifest.device, manifest.precision)
    except PrecisionError as error:
        raise ManifestError(str(error)) from None


def _list(kinds: frozenset[Kind]) -> str:
    return " and ".join(sorted(kinds))


_EVERY_KIND = frozenset(Kind)

# Nearest values err by half a step, and by what rounding the quotient adds. The searched grid of
# 4 bits may leave out a block's outermost numbers.
_HALF_A_STEP = 0.5001
_SEARCHED = 4.0

# In 8 bits where the others have 4: attention's values and the second feed-forward layer. SmolLM2's
# perplexity then grows by half as much, and its weights take a seventh more.
_SENSITIVE = frozenset(("value", "down"))

# What MiniLM and SmolLM2 lose (docs/precision.md), with room for others. A random model, of whose
# tokens none is much likelier than the next, agrees less on the likeliest than a trained one.
_INT8_DRIFT = DriftBounds(
    EmbeddingBounds(worst_cosine=0.998, mean_cosine=0.999, spearman=0.999),
    GenerationBounds(perplexity=0.01, agreement=0.9),
)
_INT4_DRIFT = DriftBounds(
    EmbeddingBounds(worst_cosine=0.95, mean_cosine=0.98, spearman=0.98),
    GenerationBounds(perplexity=0.15, agreement=0.6),
)
_INT8_DYNAMIC_DRIFT = DriftBounds(
    EmbeddingBounds(worst_cosine=0.985, mean_cosine=0.994, spearman=0.99)
)
_FP16_DRIFT = DriftBounds(
    EmbeddingBounds(worst_cosine=0.9999, mean_cosine=0.9999, spearman=0.9999),
    GenerationBounds(perplexity=0.005, agreement=0.98, cosine=0.9995, difference=0.15),
)

RECIPES = {
    (recipe.device, recipe.precision): recipe
    for recipe in (
        Recipe(Device.CPU, Precision.FP32, _EVERY_KIND, Tolerance(1e-4)),
        Recipe(
            Device.CPU,
            Precision.INT8,
            _EVERY_KIND,
            Tolerance(0.5, relative=True),
            quantiser=BlockQuantiser(8, _HALF_A_STEP),
            drift=_INT8_DRIFT,
        ),
        Recipe(
            Device.CPU,
            Precision.INT4,
            _EVERY_KIND,
            Tolerance(0.5, relative=True),
            quantiser=BlockQuantiser(4, _SEARCHED, in_eight_bits=_SENSITIVE),
            drift=_INT4_DRIFT,
        ),
        Recipe(
            Device.CPU,
            Precision.INT8_DYNAMIC,
            frozenset({Kind.ENCODER}),
            Tolerance(1.0, relative=True),
            quantiser=TokenQuantiser(_HALF_A_STEP),
            drift=_INT8_DYNAMIC_DRIFT,
        ),
        Recipe(
            Device.CUDA,
            Precision.FP16,
            _EVERY_KIND,
            Tolerance(0.03, relative=True),
            dtype=torch.float16,
            drift=_FP16_DRIFT,
        ),
    )
}
