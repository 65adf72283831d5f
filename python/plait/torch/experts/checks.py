"""Operands and options that a call of experts refuses, in words."""

import torch

from plait.errors import refuse
from plait.torch import tensors
from plait.torch.experts.call import Stacks
from plait.torch.experts.placement import NAME, Placement
from plait.torch.options import Options
from plait.torch.rows import check_matrix, float_dtype


def check_schedule(options: Options) -> None:
    """Refuse what was asked for and would do nothing; settings are for other operators too."""
    if options.engine != "native":
        refuse(NAME, f"engine={options.engine!r} has no experts")
    if options.schedule == "pipelined":
        refuse(NAME, "schedule='pipelined': experts have the schedules serial and fused")
    if options.wire == "s8":
        refuse(NAME, "wire='s8': results of experts travel in f32, bf16 or f16")


def check_operands(
    hidden: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    stacks: Stacks,
    placement: Placement,
    rank: int,
    turned: bool,
    widths: int,
) -> None:
    """Refuse operands that don't fit, in words."""
    who = f"rank {rank} of {placement.world}"
    check_matrix(hidden, NAME, "hidden")
    tensors.check(ids, NAME, "top_k_index")
    tensors.check(weights, NAME, "top_k_weights")
    if ids.is_floating_point() or ids.dim() != 2 or ids.shape[0] != hidden.shape[0]:
        refuse(
            NAME,
            f"{who}: top_k_index is {ids.dtype} {list(ids.shape)}, and hidden {list(hidden.shape)}",
        )
    if weights.shape != ids.shape:
        refuse(
            NAME,
            f"{who}: top_k_weights is {list(weights.shape)}, and top_k_index {list(ids.shape)}",
        )
    float_dtype(weights, NAME, "top_k_weights")
    width, own = hidden.shape[1], len(placement.own(rank))
    inner = stacks.down.shape[1 if turned else 2] if stacks.down.dim() == 3 else 0
    up, out = [own, widths * inner, width], [own, width, inner]
    if turned:
        up, out = [own, width, widths * inner], [own, inner, width]
    wanted = {
        "gate_up": (stacks.gate_up, up),
        "down": (stacks.down, out),
        "gate_up_bias": (stacks.gate_up_bias, [own, widths * inner]),
        "down_bias": (stacks.down_bias, [own, width]),
    }
    for name, (one, shape) in wanted.items():
        if one is None:
            continue
        tensors.check(one, NAME, name)
        if list(one.shape) != shape:
            refuse(
                NAME,
                f"{who}, which has {own} of {len(placement.ranks)} "
                f"{'experts' if placement.parts == 1 else 'parts of experts'}: {name} is "
                f"{list(one.shape)}, not {shape}",
            )
        if one.dtype != hidden.dtype and not (stacks.converts and tensors.is_plain(one)):
            refuse(NAME, f"{who}: hidden is {hidden.dtype}, and {name} {one.dtype}")
