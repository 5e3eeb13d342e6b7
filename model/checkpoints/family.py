"""A family of checkpoints: two tables, from its configuration and from its tensor names to ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from model.checkpoint import CheckpointError
from model.config import Activation, TransformerConfig
from model.transformer import Transformer

# What checkpoints call the non-linearities.
ACTIVATIONS = {
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
    "silu": Activation.SILU,
    "swish": Activation.SILU,
}


def _as_stored(_name: str, tensor: Tensor, _config: TransformerConfig) -> Tensor:
    return tensor


@dataclass(frozen=True)
class TensorTable:
    """Where a family keeps our parameters.

    Attributes:
        names: our module (its weight and bias then keep their endings) or our parameter -> theirs;
            `{layer}` stands for the number of the layer in both.
        unused: patterns of their names that no parameter needs; matched in full.
        prefix: what may stand before all their names, where the model was saved with a head.
        legacy: endings of their names as older files spell them -> as the table does.
        convert: their tensor as our parameter of that name, where more than the name differs.
        copies: their names of tensors that only repeat another -> the other; files of some versions
            hold them. Refused where they differ: the model then is not tied as configured.
        options: fields of the configuration that are off where their tensor is not stored.
    """

    names: Mapping[str, str]
    unused: tuple[str, ...] = ()
    prefix: str = ""
    legacy: Mapping[str, str] = field(default_factory=dict)
    convert: Callable[[str, Tensor, TransformerConfig], Tensor] = _as_stored
    copies: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    def of_causal_encoder(self) -> Self:
        """Where a decoder's family keeps the parameters of `TransformerConfig.as_causal_encoder`;
        its head is among the unused, tied or not."""
        pairs = self.names.items()
        head = re.escape(f"{self.names['decoder.head']}.weight")
        return replace(
            self,
            names={ours.replace("decoder.", "encoder.", 1): theirs for ours, theirs in pairs},
            unused=(*self.unused, head),
            copies={},
        )


@dataclass(frozen=True)
class Family:
    """What distinguishes a family from the others.

    Attributes:
        tensors: where it keeps our parameters.
        configure: the content of its config.json, and what to call that in messages, as ours.
            Raises `CheckpointError` where it lacks a size or asks for what formerd does not do,
            `ConfigError` where a size makes no sense.
        two_vocabularies: where it keeps our parameters if the target has a vocabulary of its own;
            None for families that have no such models.
    """

    tensors: TensorTable
    configure: Callable[[dict[str, Any], str], TransformerConfig]
    two_vocabularies: TensorTable | None = None

    def table(self, config: TransformerConfig) -> TensorTable:
        """Where a model of this configuration has its tensors."""
        if config.target_vocab_size and self.two_vocabularies is not None:
            return self.two_vocabularies
        return self.tensors


@dataclass(frozen=True)
class Fitted:
    """A checkpoint's configuration and tensors as ours; the fields are those of `Checkpoint`."""

    config: TransformerConfig
    tensors: dict[str, Tensor]
    sources: dict[str, tuple[str, ...]]
    unused: tuple[str, ...]


def fit(table: TensorTable, config: TransformerConfig, stored: Mapping[str, Tensor]) -> Fitted:
    """Gives every parameter of the configured model its tensor.

    Raises:
        CheckpointError: listing, by the checkpoint's names, every tensor that is missing, unknown
            or of the wrong shape or type.
    """
    stored_as = {_canonical(table, name): name for name in stored}
    off: dict[str, Any] = {
        option: False for option, name in table.options.items() if name not in stored_as
    }
    config = replace(config, **off)
    twice = sorted(set(stored) - set(stored_as.values()))
    with torch.device("meta"):
        parameters = dict(Transformer(config).named_parameters())
    theirs = {name: _their_name(table, name) for name in parameters}
    left_over = [stored_as[name] for name in stored_as.keys() - set(theirs.values())]
    unused = sorted(name for name in left_over if _is_unused(table, name))

    problems = [f"{name} is there twice" for name in twice]
    problems += _differing_copies(table, stored, stored_as, left_over)
    problems += [f"missing {name}" for name in set(theirs.values()) if name not in stored_as]
    problems += [f"unexpected {name}" for name in left_over if name not in unused]
    tensors = {}
    for ours, parameter in parameters.items():
        if theirs[ours] not in stored_as:
            continue
        source = stored_as[theirs[ours]]
        try:
            tensors[ours] = _fit_one(table, config, ours, stored[source], parameter.shape)
        except CheckpointError as error:
            problems.append(f"{source} {error}")
    if problems:
        raise CheckpointError(
            "the tensors do not fit the configuration: " + "; ".join(sorted(set(problems)))
        )
    return Fitted(
        config=config,
        tensors=tensors,
        sources={ours: (stored_as[name],) for ours, name in theirs.items()},
        unused=tuple(unused),
    )


def _differing_copies(
    table: TensorTable,
    stored: Mapping[str, Tensor],
    stored_as: Mapping[str, str],
    left_over: Collection[str],
) -> list[str]:
    """Of the tensors that no parameter has, those that fail to repeat another."""
    pairs = [
        (stored_as[copy], stored_as[original])
        for copy, original in table.copies.items()
        if stored_as.get(copy) in left_over and original in stored_as
    ]
    return [
        f"{copy} must repeat {original}, but differs from it"
        for copy, original in pairs
        if not torch.equal(stored[copy], stored[original])
    ]


def _fit_one(
    table: TensorTable, config: TransformerConfig, ours: str, stored: Tensor, shape: torch.Size
) -> Tensor:
    if not stored.is_floating_point():
        raise CheckpointError(f"is stored as {stored.dtype}, which is not a weight's type")
    try:
        tensor = table.convert(ours, stored, config)
    except (RuntimeError, IndexError):  # what PyTorch raises where axes are missing or do not split
        raise CheckpointError(f"has shape {list(stored.shape)}, which does not split") from None
    if tensor.shape != shape:
        raise CheckpointError(f"has shape {list(tensor.shape)} instead of {list(shape)}")
    return tensor


def require(values: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    """Raises `CheckpointError` listing those of the names that `values` lacks."""
    if missing := [name for name in names if values.get(name) is None]:
        raise CheckpointError(f"{where} lacks {', '.join(missing)}")


def refuse_other_than(
    values: Mapping[str, Any], accepted: Mapping[str, tuple[Any, ...]], where: str
) -> None:
    """Raises `CheckpointError` for each setting that asks for what formerd does not do.

    `accepted` names the values that are fine; a setting that is missing or null is fine, too.
    """
    problems = [
        f"{name} is {value!r}, supported: {', '.join(map(repr, fine)) or 'none'}"
        for name, fine in accepted.items()
        if (value := values.get(name)) is not None and value not in fine
    ]
    if problems:
        raise CheckpointError(f"{where}: {'; '.join(problems)}")


def _canonical(table: TensorTable, name: str) -> str:
    """Their name as the table spells it."""
    name = name.removeprefix(table.prefix)
    for ending, now in table.legacy.items():
        if name.endswith(ending):
            return name.removesuffix(ending) + now
    return name


def _their_name(table: TensorTable, ours: str) -> str:
    pattern = re.sub(r"\.\d+\.", ".{layer}.", ours, count=1)
    layer = "".join(re.findall(r"\.(\d+)\.", ours)[:1])
    if pattern in table.names:
        return table.names[pattern].replace("{layer}", layer)
    module, _, ending = pattern.rpartition(".")
    return f"{table.names[module]}.{ending}".replace("{layer}", layer)


def _is_unused(table: TensorTable, name: str) -> bool:
    name = _canonical(table, name)
    return name in table.copies or any(re.fullmatch(pattern, name) for pattern in table.unused)
