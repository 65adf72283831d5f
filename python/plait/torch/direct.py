"""Calls of layers that take no more than the native layer, as the tokens of a decode do.

A layer's first call is made by plait.torch.linear, which checks all that there is to check, and
keeps here what the next one needs. What may change between two calls is looked at in each: modes
of torch here, and the operands in the native layer.
"""

from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.autograd import forward_ad

from plait.torch import tensors, weights
from plait.torch.groups import is_alive
from plait.torch.options import Options

# Looking for these in torch takes as long as calling them.
_is_autocast_enabled = torch.is_autocast_enabled
_is_grad_enabled = torch.is_grad_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_tracer = torch._C._get_tracing_state
_transform = torch._C._functorch.peek_interpreter_stack
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
    if direct is None or direct.kind != kind or not direct.has(options):
        return None
    member = dist.GroupMember.WORLD if group is None else group
    if member is None or direct.group() is not member or not is_alive(member):
        return None
    if (
        type(x) not in _PLAIN
        or _is_autocast_enabled("cpu")
        # is_watched() as written here: between products each function takes microseconds more.
        or _dispatch_modes() != 0
        or _function_modes() != 0
        or _tracer() is not None
        or _transform() is not None
        or forward_ad._current_level >= 0
    ):
        return None
    by: Any = weight
    if direct.packs:
        if type(weight) not in _PLAIN or weight.is_inference() or weight.dim() != 2:
            return None
        if _is_grad_enabled() and weight.requires_grad:
            return None
        by = weights.packed(weight, weight.dtype, owner)
    if not direct.tally.is_due(x.shape):
        return direct.native._multiply(tensors.TORCH, x, by, bias)  # type: ignore[no-any-return]
    found: list[torch.Tensor | None] = []
    direct.trace(lambda: found.append(direct.native._multiply(tensors.TORCH, x, by, bias)))
    return found[0]
