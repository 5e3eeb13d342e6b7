"""Which precision is for what, and what is refused by both names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from export.manifest import Device, ManifestError, Precision, load_manifest
from export.recipe import RecipeError, find_recipe, recipe_of
from model.config import Kind
from tests.artefacts import encoder_artefact


def test_a_precision_that_the_device_does_not_have_is_refused_by_both_names() -> None:
    message = r"--precision bf16 with --device cpu is not supported; cpu has fp32"
    with pytest.raises(RecipeError, match=message):
        find_recipe(Device.CPU, Precision.BF16)


def test_a_kind_that_the_precision_is_not_for_is_refused_by_both_names() -> None:
    recipe = replace(find_recipe(Device.CPU, Precision.FP32), kinds=frozenset({Kind.ENCODER}))
    recipe.check_kind(Kind.ENCODER)
    with pytest.raises(RecipeError, match="--precision fp32 is for encoder; this is decoder"):
        recipe.check_kind(Kind.DECODER)


def test_an_artefact_names_its_recipe() -> None:
    manifest = load_manifest(encoder_artefact())
    assert recipe_of(manifest) == find_recipe(Device.CPU, Precision.FP32)
    with pytest.raises(ManifestError, match="bf16 with --device cpu"):
        recipe_of(replace(manifest, precision=Precision.BF16))
