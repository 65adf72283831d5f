"""Calls of layers that take no more than the native layer, as the tokens of a decode do.

A layer's first call is made by plait.torch.linear, which checks all that there is to check, and
keeps what the next one needs by the layer's owner. What may change between two calls is looked at
in each of them, by the native module: modes of torch, the group, options and operands.
"""

from typing import Literal

import torch
import torch.distributed as dist

from plait.torch import tensors, weights
from plait.torch.options import Options

# Looking for it in torch takes as long as calling it.
_is_grad_enabled = torch.is_grad_enabled
_PLAIN = tensors.PLAIN


def multiply(
    kind: Literal["column", "row"],
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    group: dist.ProcessGroup | None,
    options: Options,
    owner: weights.Owner,
) -> torch.Tensor | None:
    """Make a call without sequence parallelism; None: plait.torch.linear does."""
    direct = owner.direct()
    if direct is None or direct.kind != kind:
        return None
    by: object = weight
    if direct.packs:
        if type(weight) not in _PLAIN or weight.is_inference() or weight.dim() != 2:
            return None
        if _is_grad_enabled() and weight.requires_grad:
            return None
        by = weights.packed(weight, weight.dtype, owner)
    member = dist.GroupMember.WORLD if group is None else group
    out: torch.Tensor | None = direct.multiply(x, by, bias, member, options)
    return out
