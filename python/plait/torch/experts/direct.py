"""Calls of experts that take no more than the native layer, as the tokens of a decode do.

The first call of a place in a model checks all that there is to check, and keeps here what the next
one needs. What may change between two calls is looked at in each: modes of torch and the weights
here, the other operands in the native layer. See plait.torch.direct, which does so for linear
layers.
"""

import time
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist

from plait import _native
from plait.torch import tensors
from plait.torch.context import Context, Group
from plait.torch.experts import counts
from plait.torch.experts.call import Call, Stacks
from plait.torch.groups import is_alive
from plait.torch.options import Options
from plait.torch.weights import Owner, place_of

# The options of a call; see Call.
How = tuple[Any, ...]

Owners = tuple[Owner, Owner]


@dataclass(eq=False)
class Direct:
    """Calls without gradients, by weights that stay where they are."""

    how: How
    options: Options
    group: Group
    places: tuple[object, ...]
    native: Any
    total: counts.Key


def keep(
    owners: Owners,
    call: Call,
    how: How,
    options: Options,
    hidden: torch.Tensor,
    slots: int,
    given: Stacks,
) -> None:
    """Keep what the owners' next call needs, after one that had no gradients."""
    context: Context = call.context
    stacks = given.contiguous()
    if context.group() is None or _addresses(given) != _addresses(stacks):
        return  # a program without groups, or copies of this call alone
    layer = call.layer(hidden, slots, stacks)
    native = _native._ExpertsByStacks(layer, call.operands(stacks, hidden.dtype))
    key = counts.key_of(call, hidden, slots, given.down)
    places = _places(owners, given.tensors())
    made = Direct(how, options, context.group, places, native, key)
    context.direct[owners[0]] = made
    owners[0].direct = ref(made)


def multiply(
    owners: Owners,
    hidden: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    stacks: tuple[torch.Tensor | None, ...],
    how: How,
    group: dist.ProcessGroup | None,
    options: Options,
) -> torch.Tensor | None:
    """Make a call as the owners' one before; None: expert_parallel() does."""
    direct = owners[0].direct()
    if direct is None or direct.how != how or direct.options is not options:
        return None
    member = dist.GroupMember.WORLD if group is None else group
    if member is None or direct.group() is not member or not is_alive(member):
        return None
    if tensors.MODES.are_on() or direct.places != _places(owners, stacks):
        return None
    if type(weights) not in tensors.PLAIN or tensors.require_gradients(hidden, weights, *stacks):
        return None
    if ids.shape != weights.shape:
        return None
    if weights.dtype is not torch.float32:
        if not tensors.is_plain(weights):
            return None
        weights = weights.float()
    begin = time.perf_counter_ns()
    made = direct.native.multiply(tensors.TORCH, hidden, ids, weights)
    if made is None:
        return None
    counts.add(direct.total, made[1], time.perf_counter_ns() - begin)
    return made[0]  # type: ignore[no-any-return]


def _places(owners: Owners, stacks: tuple[torch.Tensor | None, ...]) -> tuple[object, ...]:
    """Say where weights lie, and which version of their values: see Owner.see_changes() too."""
    places = (None if one is None else (type(one), *place_of(one)) for one in stacks)
    return owners[0].versions, owners[1].versions, *places


def _addresses(stacks: Stacks) -> list[int]:
    return [0 if one is None else one.data_ptr() for one in stacks.tensors()]
