"""Rules of decoding beside the processors of transformers, and which settings are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    GenerationConfig,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from model.decoding_rules import NO_RULES, SETTINGS, DecodingRules
from model.typed_fields import ConfigError

ENDS = (1, 4)
SCORES = torch.randn(12, generator=torch.Generator().manual_seed(0))
TARGET = [0, 5, 6, 7, 5, 6, 8, 5, 6]


def applied(rules: DecodingRules, target: list[int] = TARGET, room: int = 9) -> Tensor:
    return rules.apply(SCORES, target, len(target) - 1, room=room, ends=ENDS)


def test_without_rules_scores_stay() -> None:
    assert torch.equal(applied(NO_RULES), SCORES)
    assert DecodingRules.from_settings({}, ENDS) == NO_RULES


@pytest.mark.parametrize("size", [1, 2, 3, 4, 20])
@pytest.mark.parametrize("length", [1, 2, 5, 9])
def test_no_tokens_in_a_row_come_twice(size: int, length: int) -> None:
    rules = DecodingRules.from_settings({"no_repeat_ngram_size": size}, ENDS)
    processor = NoRepeatNGramLogitsProcessor(size)
    expected = processor(torch.tensor([TARGET[:length]]), SCORES[None].clone())[0]
    assert torch.equal(applied(rules, TARGET[:length]), expected)


def test_forbidden_tokens() -> None:
    settings = {"bad_words_ids": [[2], [1], [9]], "suppress_tokens": [3]}
    rules = DecodingRules.from_settings(settings, ENDS)
    expected = NoBadWordsLogitsProcessor([[2], [1], [9]], list(ENDS))(
        torch.tensor([TARGET]), SCORES[None].clone()
    )
    expected = SuppressTokensLogitsProcessor([3])(torch.tensor([TARGET]), expected)[0]
    assert torch.equal(applied(rules), expected)
    assert rules.forbidden_ids == (2, 3, 9)  # no bad word is an end


@pytest.mark.parametrize("settings", [{"min_new_tokens": 3}, {"min_length": 4}])
def test_a_target_does_not_end_early(settings: dict[str, int]) -> None:
    rules = DecodingRules.from_settings(settings, ENDS)
    processor = MinNewTokensLengthLogitsProcessor(1, 3, list(ENDS))
    for length in (1, 3, 4):
        ids = torch.tensor([TARGET[:length]])
        expected = processor(ids, SCORES[None].clone())[0]
        assert torch.equal(applied(rules, TARGET[:length]), expected)
        assert bool(expected.isinf().any()) == (length < 4)


def test_forced_tokens() -> None:
    settings = {"forced_bos_token_id": 7, "forced_eos_token_id": [4], "bad_words_ids": [[7]]}
    rules = DecodingRules.from_settings(settings, ENDS)
    first, last = ForcedBOSTokenLogitsProcessor(7), ForcedEOSTokenLogitsProcessor(10, 4)
    start, end = torch.tensor([TARGET[:1]]), torch.tensor([TARGET])
    assert torch.equal(applied(rules, TARGET[:1]), first(start, SCORES[None])[0])
    assert torch.equal(applied(rules, room=1), last(end, SCORES[None])[0])
    assert torch.equal(applied(rules, TARGET[:1], room=1).argmax(), torch.tensor(4))
    assert not bool(applied(rules, TARGET[:3])[4].isinf())


def test_settings_are_those_of_transformers() -> None:
    known = {*GenerationConfig().to_dict(), "constraints", "dola_layers", "force_words_ids"}
    known |= {"forced_decoder_ids", "num_beam_groups", "diversity_penalty", "penalty_alpha"}
    assert set(SETTINGS) <= known


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bad_words_ids": [[2, 3]]}, r"bad_words_ids holds \[2, 3\]; supported are words of one"),
        ({"bad_words_ids": [2]}, "bad_words_ids is"),
        ({"bad_words_ids": [["a"]]}, r"bad_words_ids is \['a'\]"),
        ({"suppress_tokens": [-1]}, "suppress_tokens is"),
        ({"forced_bos_token_id": "x"}, "forced_bos_token_id is 'x'"),
        ({"forced_eos_token_id": [1, 2]}, "supported is one token"),
        ({"min_length": -1}, "min_length is -1"),
        ({"no_repeat_ngram_size": 2.5}, "no_repeat_ngram_size is 2.5"),
        (
            {"begin_suppress_tokens": [3], "encoder_no_repeat_ngram_size": 3},
            r"not supported: begin_suppress_tokens is \[3\]; encoder_no_repeat_ngram_size is 3",
        ),
        ({"sequence_bias": [[[1], 2.0]]}, "sequence_bias"),
        ({"num_beam_groups": 2}, "num_beam_groups is 2"),
    ],
)
def test_refusals_name_the_setting(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DecodingRules.from_settings(settings, ENDS)


def test_neutral_settings_are_fine() -> None:
    settings = {"typical_p": 1.0, "num_beam_groups": 1, "token_healing": False, "top_h": None}
    assert DecodingRules.from_settings(settings, ENDS) == NO_RULES
