"""Weights in the layout that the runtime multiplies by, under the model's own names."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.transformer import Transformer


class MatMulLinear(nn.Module):
    """A linear layer with its weight stored `[in, out]`: no graph transposes at run time."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = nn.Parameter(linear.weight.detach().t().contiguous(), requires_grad=False)
        self.bias = linear.bias

    def forward(self, states: Tensor) -> Tensor:
        """`[..., in]` -> `[..., out]`."""
        mixed = torch.matmul(states, self.weight)
        return mixed if self.bias is None else mixed + self.bias


def transposed_names(model: Transformer) -> set[str]:
    """The parameters that a graph stores transposed: the weights of the linear layers.

    A tied head is not among them: it shares the embedding's table, and its matrix product reads
    that as it is.
    """
    tied = model.config.has_decoder and model.config.tied_head
    return {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not (tied and name == "decoder.head")
    }


def lay_out_for_matmul(model: Transformer) -> None:
    """Replaces the linear layers that `transposed_names` names, in place."""
    for name in sorted(transposed_names(model)):
        path = name.removesuffix(".weight")
        linear = model.get_submodule(path)
        assert isinstance(linear, nn.Linear)
        model.set_submodule(path, MatMulLinear(linear))
