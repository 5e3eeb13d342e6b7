"""What a checkpoint demands of every text that it generates, whatever is asked of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from model.typed_fields import ConfigError

# Settings that would change what is generated, and the values with which they do not.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "begin_suppress_tokens": ([],),
    "constraints": (),
    "diversity_penalty": (0, 0.0),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1, 1.0),
    "epsilon_cutoff": (0, 0.0),
    "eta_cutoff": (0, 0.0),
    "exponential_decay_length_penalty": (),
    "force_words_ids": ([],),
    "forced_decoder_ids": ([],),
    "guidance_scale": (1, 1.0),
    "num_beam_groups": (1,),
    "penalty_alpha": (0, 0.0),
    "sequence_bias": ({}, []),
    "stop_strings": ([],),
    "token_healing": (False,),
    "top_h": (),
    "typical_p": (1, 1.0),
    "watermarking_config": (),
}
_RULES = (
    "bad_words_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "renormalize_logits",
    "suppress_tokens",
)
# Every setting that says which tokens follow, when a text ends, and which of several is best.
SETTINGS = (*_RULES, *_UNSUPPORTED, "max_length", "max_new_tokens", "length_penalty")


@dataclass(frozen=True)
class DecodingRules:
    """Rules for the tokens of a target.

    Attributes:
        first_id: what comes right after the start token, such as a language; None where it is free.
        last_id: what a target ends with that no more tokens fit; None where it is free.
        forbidden_ids: never generated.
        ngram_size: no so many tokens in a row come twice in a target; 0 where any may.
        min_new_tokens: a target does not end before.
        renormalised: whether a beam search scores with probabilities that sum to 1 under the rules.
    """

    first_id: int | None = None
    last_id: int | None = None
    forbidden_ids: tuple[int, ...] = ()
    ngram_size: int = 0
    min_new_tokens: int = 0
    renormalised: bool = False

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], eos_ids: Collection[int]) -> Self:
        """Reads generation settings by transformers' names, those of `Checkpoint.generation`.

        Raises:
            ConfigError: a setting makes no sense, or asks for what formerd does not do.
        """
        _check_support(settings)
        words = _single_tokens(settings)
        return cls(
            first_id=_forced_id(settings, "forced_bos_token_id"),
            last_id=_forced_id(settings, "forced_eos_token_id"),
            forbidden_ids=tuple(
                sorted({*words.difference(eos_ids), *_ids(settings, "suppress_tokens")})
            ),
            ngram_size=_count(settings, "no_repeat_ngram_size"),
            # The first of these counts the start token, too.
            min_new_tokens=max(
                _count(settings, "min_length") - 1, _count(settings, "min_new_tokens")
            ),
            renormalised=bool(settings.get("renormalize_logits")),
        )

    def apply(
        self,
        scores: Tensor,
        target: Sequence[int],
        new_tokens: int,
        *,
        room: int,
        ends: Sequence[int],
    ) -> Tensor:
        """Scores `[V]` of the next token, those of the tokens that may not follow at -inf.

        Args:
            scores: logits or log-probabilities; a token that is forced scores 0.
            target: the ids so far, from the start token on.
            new_tokens: how many of them were generated.
            room: how many tokens still fit, at least 1.
            ends: the ids that end a target.
        """
        if room == 1 and self.last_id is not None:
            return _forced(scores, self.last_id)
        if len(target) == 1 and self.first_id is not None:
            return _forced(scores, self.first_id)
        forbidden = {*self.forbidden_ids, *self._repeating(target)}
        if new_tokens < self.min_new_tokens:
            forbidden.update(ends)
        return scores.index_fill(0, torch.tensor(sorted(forbidden), dtype=torch.long), -torch.inf)

    def _repeating(self, target: Sequence[int]) -> set[int]:
        """The tokens with which the target would repeat `ngram_size` tokens in a row."""
        if not self.ngram_size:
            return set()
        before = self.ngram_size - 1
        latest = list(target[len(target) - before :])
        return {
            target[start + before]
            for start in range(len(target) - before)
            if list(target[start : start + before]) == latest
        }


NO_RULES = DecodingRules()


def _forced(scores: Tensor, token_id: int) -> Tensor:
    alone = torch.full_like(scores, -torch.inf)
    alone[token_id] = 0.0
    return alone


def _check_support(settings: Mapping[str, Any]) -> None:
    problems = [
        f"{name} is {settings[name]!r}"
        for name, neutral in _UNSUPPORTED.items()
        if settings.get(name) is not None and settings[name] not in neutral
    ]
    if problems:
        raise ConfigError(f"generation settings that are not supported: {'; '.join(problems)}")


def _count(settings: Mapping[str, Any], name: str) -> int:
    value = settings.get(name) or 0
    if type(value) is not int or value < 0:
        raise ConfigError(f"{name} is {value!r}; it must be a number of tokens")
    return value


def _ids(settings: Mapping[str, Any], name: str) -> list[int]:
    value = settings.get(name)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(type(each) is int and each >= 0 for each in ids):
        raise ConfigError(f"{name} is {value!r}; it must hold token ids")
    return ids


def _forced_id(settings: Mapping[str, Any], name: str) -> int | None:
    ids = _ids(settings, name)
    if len(ids) > 1:
        raise ConfigError(f"{name} is {ids}; supported is one token")
    return ids[0] if ids else None


def _single_tokens(settings: Mapping[str, Any]) -> set[int]:
    """The bad words, of one token each."""
    words = settings.get("bad_words_ids") or []
    if not isinstance(words, list) or not all(isinstance(word, list) for word in words):
        raise ConfigError(f"bad_words_ids is {words!r}; it must hold lists of token ids")
    if longer := [word for word in words if len(word) != 1]:
        raise ConfigError(f"bad_words_ids holds {longer[0]}; supported are words of one token")
    return {each for word in words for each in _ids({"bad_words_ids": word}, "bad_words_ids")}
