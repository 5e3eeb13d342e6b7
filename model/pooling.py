"""From the states of a text's tokens to one vector (Reimers and Gurevych 2019)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from model.config import Pooling, PoolingMode


def pool(states: Tensor, lengths: Tensor, pooling: Pooling) -> Tensor:
    """Pools padded states.

    Args:
        states: `[B, S, d_model]`; what lies beyond a text's length has no influence.
        lengths: int64 `[B]`, at least 1 each.

    Returns:
        `[B, d_model]`, of unit length where the pooling says so.
    """
    real = (torch.arange(states.shape[1]) < lengths[:, None])[..., None]  # [B, S, 1]
    match pooling.mode:
        case PoolingMode.MEAN:
            # Not a product with the mask: 0 times infinity would spoil the sum.
            vectors = states.masked_fill(~real, 0.0).sum(dim=1) / lengths[:, None]
        case PoolingMode.CLS:
            vectors = states[:, 0]
        case PoolingMode.MAX:
            vectors = states.masked_fill(~real, -torch.inf).amax(dim=1)
        case PoolingMode.LAST:
            vectors = states[torch.arange(states.shape[0]), lengths - 1]
    return functional.normalize(vectors, dim=-1) if pooling.normalize else vectors
