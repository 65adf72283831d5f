"""Calls of experts as operators of torch, which compiled programs make.

A graph holds plain arguments and tensors. So a group is here by its name, an activation by its
fields, and the owners of packed weights by tensors with their numbers: layers of the same sizes are
the same graph in this way, and a graph that torch keeps on disk serves another process.

A program that isn't compiled calls plait.torch.experts.layer, which takes less time.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from plait.errors import refuse
from plait.torch import tensors
from plait.torch.context import context_alone, context_of, group_place
from plait.torch.definitions import LIBRARY, define
from plait.torch.experts import counts
from plait.torch.experts.call import (
    Activation,
    Call,
    Silu,
    Stacks,
    Swiglu,
    run_backward,
    run_forward,
)
from plait.torch.experts.checks import check_operands, check_schedule
from plait.torch.experts.placement import NAME, Placement
from plait.torch.how import group_called
from plait.torch.once import differentiable_once
from plait.torch.options import Options
from plait.torch.rows import as_rows
from plait.torch.weights import Owner, owner_numbered

ALONE = "alone:"  # in the place of a group's name: this process by itself

_ops = torch.ops.plait
_STACKS = "Tensor gate_up, Tensor down, Tensor? gate_up_bias, Tensor? down_bias"
_OPERANDS = f"Tensor hidden, Tensor ids, Tensor weights, {_STACKS}"
_OPERAND_COUNT = 7
_HOW = (
    "str group, str schedule, str wire, bool fixed_weights, int experts, int parts, "
    "int[]? placement, str activation, float alpha, float? limit, float added, bool weighted, "
    "bool turned, bool shared_batch"
)


class How(NamedTuple):
    """The arguments of the operators that are no tensors; see expert_parallel()."""

    group: str
    schedule: str
    wire: str
    fixed_weights: bool
    experts: int
    parts: int
    placement: Sequence[int] | None
    activation: str
    alpha: float
    limit: float | None
    added: float
    weighted: bool
    turned: bool
    shared_batch: bool


def how_of(
    group: dist.ProcessGroup | str | None,
    options: Options,
    experts: int,
    parts: int,
    placement: Sequence[int] | None,
    activation: Activation,
    turned: bool,
    shared_batch: bool,
) -> How:
    """Return the arguments of a call whose options have neither settings nor another engine."""
    name = group or "" if group is None or isinstance(group, str) else group.group_name
    return How(
        name,
        options.schedule or "",
        options.wire or "",
        options.fixed_weights,
        experts,
        parts,
        placement,
        activation.name,
        activation.alpha,
        activation.limit,
        activation.added,
        activation.weighted,
        turned,
        shared_batch,
    )


def multiply(
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    stacks: tuple[torch.Tensor | None, ...],
    owners: tuple[Owner, Owner] | None,
    how: How,
    shared: Callable[[torch.Tensor], torch.Tensor] | None,
) -> torch.Tensor:
    """Make a call of hidden, ids and weights, in a graph."""
    hidden, ids, weights = operands
    given = [one for one in (hidden, weights, *stacks) if one is not None]
    gradients = torch.is_grad_enabled() and any(one.requires_grad for one in given)
    packs = how.fixed_weights and owners is not None and not gradients
    is_cast = torch.is_autocast_enabled("cpu")
    if is_cast:
        dtype = torch.get_autocast_dtype("cpu")
        hidden = tensors.cast(hidden, dtype)
        if not packs:  # the operator converts a weight that it packs, once
            stacks = tuple(None if one is None else tensors.cast(one, dtype) for one in stacks)
    numbers = (owners[0].number, owners[1].number) if packs and owners is not None else (None, None)
    by = *numbers, packs and is_cast, gradients
    out: torch.Tensor = _ops.expert_parallel_mlp(hidden, ids, weights, *stacks, *by, *how)
    return out if shared is None else out + shared(hidden)


@functools.lru_cache(maxsize=64)
def _options(schedule: str, wire: str, fixed_weights: bool) -> Options:
    return Options(
        schedule=schedule or None,  # type: ignore[arg-type]
        wire=wire or None,
        fixed_weights=fixed_weights,
    )


def _call_of(how: How) -> tuple[Call, int]:
    """Return a call with its context, and this rank."""
    options = _options(how.schedule, how.wire, how.fixed_weights)
    check_schedule(options)
    if how.group == ALONE:
        rank, world = 0, 1
        context = context_alone(options)
    else:
        group = group_called(how.group, NAME)
        rank, world = group_place(group, NAME)
        context = context_of(group, options, NAME)
    ranks = None if how.placement is None else tuple(how.placement)
    placed = Placement.of(how.experts, ranks, world, how.parts)
    return Call(placed, context, _activation_of(how), how.turned, how.shared_batch), rank


def _activation_of(how: How) -> Activation:
    if how.activation == Silu.name:
        return Silu(how.alpha, how.limit, how.weighted)
    interleaved = how.activation == Swiglu(interleaved=True).name
    return Swiglu(interleaved, how.alpha, how.limit, how.added, how.weighted)


def _packs(stacks: Stacks, numbers: Sequence[torch.Tensor | None]) -> None:
    """Let owners keep packed weights of parameters.

    Another tensor is an intermediate result of the graph, which may lie where an older one lay.
    """
    if all(isinstance(one, torch.nn.Parameter) for one in (stacks.gate_up, stacks.down)):
        first, second = (None if one is None else owner_numbered(one) for one in numbers)
        if first is not None and second is not None:
            stacks.packs = first, second


def _run(
    hidden: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    gate_up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    gate_up_owner: torch.Tensor | None,
    down_owner: torch.Tensor | None,
    converts: bool,
    gradients: bool,
    *how: Any,
) -> torch.Tensor:
    begin = time.perf_counter_ns()
    call, rank = _call_of(How(*how))
    stacks = Stacks(gate_up, down, gate_up_bias, down_bias)
    _packs(stacks, (gate_up_owner, down_owner))
    if converts:
        stacks = stacks.cast(hidden.dtype)
    placed, widths = call.placement, call.activation.widths
    check_operands(hidden, ids, weights, stacks, placed, rank, call.turned, widths)
    if gradients and call.shared_batch:
        refuse(NAME, "shared_batch is for inference; call it under torch.no_grad()")
    ids = ids.to(torch.int64).contiguous()
    operands = as_rows(hidden), ids, weights.detach(), stacks
    out, counted = run_forward(call, *operands, gradients=gradients)
    key = counts.key_of(call, hidden, ids.shape[1], down)
    counts.add(key, counted, time.perf_counter_ns() - begin)
    return out


def _fake(hidden: torch.Tensor, *others: Any) -> torch.Tensor:
    return hidden.new_empty(hidden.shape)


def _run_gradients(
    grad: torch.Tensor,
    hidden: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    gate_up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    needs: Sequence[bool],
    *how: Any,
) -> list[torch.Tensor]:
    """Return the gradients that are needed, of hidden, weights and stacks."""
    tensors.check(grad, NAME, "grad")
    call, _ = _call_of(How(*how))
    stacks = Stacks(gate_up, down, gate_up_bias, down_bias)
    ids = ids.to(torch.int64).contiguous()
    made = run_backward(call, grad, as_rows(hidden), ids, weights, stacks, needs)
    return [one for one in made if one is not None]


def _gradients_fake(
    grad: torch.Tensor,
    hidden: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    gate_up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    needs: Sequence[bool],
    *how: Any,
) -> list[torch.Tensor]:
    given = (hidden, weights, gate_up, down, gate_up_bias, down_bias)
    wanted = zip(given, needs, strict=True)
    return [one.new_empty(one.shape) for one, need in wanted if need and one is not None]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.how, ctx.arguments = inputs[-len(How._fields) :], len(inputs)
    ctx.save_for_backward(*inputs[:_OPERAND_COUNT])


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    needs_hidden, _, *others = ctx.needs_input_grad[:_OPERAND_COUNT]
    needs = [needs_hidden, *others]
    made = iter(_ops.expert_parallel_mlp_gradients(grad, *ctx.saved_tensors, needs, *ctx.how))
    grad_hidden, *grads = (next(made) if need else None for need in needs)
    return grad_hidden, None, *grads, *(None,) * (ctx.arguments - _OPERAND_COUNT)


define(
    f"{NAME}({_OPERANDS}, Tensor? gate_up_owner, Tensor? down_owner, bool converts, "
    f"bool gradients, {_HOW}) -> Tensor",
    _run,
    _fake,
    _run,  # refuses in words
)
define(
    f"{NAME}_gradients(Tensor grad, {_OPERANDS}, bool[] needs, {_HOW}) -> Tensor[]",
    _run_gradients,
    _gradients_fake,
)
torch.library.register_autograd(
    f"plait::{NAME}",
    functools.partial(differentiable_once, name=NAME, linear=False)(_backward),
    setup_context=_save,
    lib=LIBRARY,
)
