"""Which precision is for what, and what is refused by both names."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from export.manifest import Device, ManifestError, Precision, load_manifest
from export.precisions import PrecisionError, check_precision
from export.recipe import RECIPES, find_recipe, recipe_of
from model.config import Kind
from tests.artefacts import encoder_artefact


def test_a_precision_that_the_device_does_not_have_is_refused_by_both_names() -> None:
    message = r"--precision bf16 with --device cpu is not supported; cpu has fp32"
    with pytest.raises(PrecisionError, match=message):
        find_recipe(Device.CPU, Precision.BF16)


def test_a_kind_that_the_precision_is_not_for_is_refused_by_both_names() -> None:
    recipe = replace(find_recipe(Device.CPU, Precision.FP32), kinds=frozenset({Kind.ENCODER}))
    recipe.check_kind(Kind.ENCODER)
    with pytest.raises(PrecisionError, match="--precision fp32 is for encoder; this is decoder"):
        recipe.check_kind(Kind.DECODER)


def test_an_artefact_names_its_recipe() -> None:
    manifest = load_manifest(encoder_artefact())
    assert recipe_of(manifest) == find_recipe(Device.CPU, Precision.FP32)
    with pytest.raises(ManifestError, match="bf16 with --device cpu"):
        recipe_of(replace(manifest, precision=Precision.BF16))


def test_every_precision_that_a_device_has_is_described() -> None:
    described = set()
    for device, precision in product(Device, Precision):
        with suppress(PrecisionError):
            check_precision(device, precision)
            assert find_recipe(device, precision).precision is precision
            described.add((device, precision))
    assert described == RECIPES.keys()
