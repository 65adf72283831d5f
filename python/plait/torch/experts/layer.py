"""The layer of experts as a function of tensors, with its gradients, and as a module."""

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from plait.errors import refuse
from plait.torch import tensors
from plait.torch.context import context_of, group_place
from plait.torch.experts import counts
from plait.torch.experts.call import Call, Swiglu
from plait.torch.experts.placement import NAME, Placement, Route
from plait.torch.experts.shared_batch import combine_shared
from plait.torch.graphs import outside_of_graphs
from plait.torch.once import differentiable_once
from plait.torch.options import Options, check_options
from plait.torch.rows import as_rows, check_matrix, float_dtype
from plait.torch.weights import Owner

_DEFAULTS = Options()
_SWIGLU = Swiglu()


@dataclass
class Stacks:
    """Own experts' weights, of both products, and their biases."""

    gate_up: torch.Tensor
    down: torch.Tensor
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    packs: tuple[Owner, Owner] | tuple[None, None] = (None, None)  # keep packed weights

    def tensors(self) -> tuple[torch.Tensor | None, ...]:
        """Return all of them, as autograd takes them."""
        return self.gate_up, self.down, self.gate_up_bias, self.down_bias


@outside_of_graphs
def expert_parallel(
    hidden: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    *,
    experts: int,
    gate_up_bias: torch.Tensor | None = None,
    down_bias: torch.Tensor | None = None,
    placement: Sequence[int] | None = None,
    activation: Swiglu = _SWIGLU,
    transposed: bool = False,
    shared_batch: bool = False,
    group: dist.ProcessGroup | None = None,
    options: Options = _DEFAULTS,
    packs: tuple[Owner, Owner] | tuple[None, None] = (None, None),
) -> torch.Tensor:
    """Let each row be multiplied by its experts, wherever they are, and add up the results.

    >>> x, ids = torch.ones(3, 4), torch.tensor([[0, 1], [1, 1], [0, -1]])
    >>> up, down = torch.ones(2, 6, 4), torch.ones(2, 4, 3)
    >>> expert_parallel(x, ids, torch.ones(3, 2), up, down, experts=2).shape
    torch.Size([3, 4])

    `hidden` is [rows, H]; `top_k_index` [rows, k] has numbers from 0 to `experts` - 1, or -1 for
    none; `top_k_weights` is [rows, k]. `gate_up` [e, 2F, H] and `down` [e, H, F] are this rank's
    experts, with `transposed` [e, H, 2F] and [e, F, H]. `placement` says on which rank each expert
    is: without it they lie in contiguous blocks, of which the first ones have one more where it is
    uneven. A rank's experts lie in the order of their numbers.

    All ranks make the call, with as many rows as they like, and all or none call its backward: a
    rank where no operand requires a gradient would leave the others waiting. `shared_batch` says
    that all ranks have the same rows, experts and weights: no row is sent before it is multiplied.
    It is for inference.
    """
    check_options(options, NAME)
    tensors.refuse_tracing(NAME, hidden)
    _check_schedule(options)
    hidden = tensors.resolved(hidden)
    stacks = Stacks(gate_up, down, gate_up_bias, down_bias, packs)
    rank, world = group_place(group, NAME)
    given = None if placement is None else tuple(placement)
    placed = Placement.of(experts, given, world)
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        hidden = tensors.cast(hidden, dtype)
        cast = [None if one is None else tensors.cast(one, dtype) for one in stacks.tensors()]
        stacks = Stacks(*cast, packs=packs)  # type: ignore[arg-type, misc]
    check_operands(hidden, top_k_index, top_k_weights, stacks, placed, rank, transposed)
    context = context_of(group, options, NAME)
    call = Call(
        ids=top_k_index.to(torch.int64).contiguous(),
        placement=placed,
        rank=rank,
        comm=None if world == 1 else context.comm,
        activation=activation,
        turned=transposed,
        threads=context.settings.threads,
        backend=context.settings.backend,
    )
    return apply(call, hidden, top_k_weights, stacks, shared_batch=shared_batch)


def _check_schedule(options: Options) -> None:
    """Refuse what was asked for and would do nothing; settings are for other operators too."""
    if options.engine != "native":
        refuse(NAME, f"engine={options.engine!r} has no experts")
    if options.schedule not in (None, "auto", "serial"):
        refuse(NAME, f"schedule={options.schedule!r}: experts have the schedule serial alone")
    if options.wire not in (None, "auto"):
        refuse(NAME, f"wire={options.wire!r}: rows of experts travel in the dtype of hidden")


def apply(
    call: Call,
    hidden: torch.Tensor,
    weights: torch.Tensor,
    stacks: Stacks,
    *,
    shared_batch: bool = False,
) -> torch.Tensor:
    """Make a call whose operands are checked."""
    begin = time.perf_counter_ns()
    hidden = as_rows(hidden)
    operands = (hidden, weights, *stacks.tensors())
    wants = tensors.wants_gradient(*operands)
    if shared_batch and wants:
        refuse(NAME, "shared_batch is for inference; call it under torch.no_grad()")
    if shared_batch and call.comm is not None:
        out = _run_shared(call, hidden, weights, stacks)
    elif wants:
        out = _Experts.apply(*operands, call)  # type: ignore[no-untyped-call]
    else:
        out = _forward(call, hidden, weights, stacks)[0]
    counts.count(call, hidden, stacks.down, time.perf_counter_ns() - begin)
    return out


def _products(call: Call, rows: torch.Tensor, stacks: Stacks) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what goes into the activation, and the results of own experts' rows."""
    first, second = stacks.packs
    inner = call.multiply(rows, stacks.gate_up, stacks.gate_up_bias, packs=first)
    outer = call.multiply(call.gate(inner), stacks.down, stacks.down_bias, packs=second)
    return inner, outer


def _forward(
    call: Call, hidden: torch.Tensor, weights: torch.Tensor, stacks: Stacks
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the result, and what backward needs."""
    call.route = Route.of(call.ids, call.placement, call.rank)
    factors = weights.detach().float().contiguous()
    rows = call.dispatch(hidden.detach()[call.route.tokens])
    call.count_rows(stacks.down.shape[0])
    inner, outer = _products(call, rows, stacks)
    results = call.return_rows(outer)
    out = call.combine(results, factors, hidden.shape[0], call.route)
    return out, rows, inner, results, factors


def _run_shared(
    call: Call, hidden: torch.Tensor, weights: torch.Tensor, stacks: Stacks
) -> torch.Tensor:
    """Multiply own experts' rows of a batch that all ranks have."""
    route = call.route = Route.of(call.ids, call.placement, call.rank)
    own = route.of_rank(call.rank, call.placement)
    first = call.rank * call.placement.groups
    call.rows = route.counts[first : first + stacks.down.shape[0]]
    tokens = route.tokens[own]
    outer = _products(call, hidden.detach()[tokens], stacks)[1]
    factors = weights.detach().float().contiguous()
    return combine_shared(call, outer, tokens, factors)


class _Experts(torch.autograd.Function):
    """The whole layer: its backward exchanges gradients as its forward does rows."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weights: torch.Tensor,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        gate_up_bias: torch.Tensor | None,
        down_bias: torch.Tensor | None,
        call: Call,
    ) -> torch.Tensor:
        stacks = Stacks(gate_up, down, gate_up_bias, down_bias)
        out, *kept = _forward(call, hidden, weights, stacks)
        ctx.call, ctx.dtype = call, weights.dtype
        ctx.save_for_backward(gate_up, down, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _backward(ctx, grad)


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    gate_up, down, rows, inner, results, factors = ctx.saved_tensors
    call: Call = ctx.call
    needs = ctx.needs_input_grad
    grad_results, grad_factors = call.combine_gradient(as_rows(grad), results, factors)
    grad_outer = call.dispatch(grad_results)
    grad_down = grad_down_bias = grad_gate_up = grad_gate_up_bias = grad_hidden = None
    if needs[3]:
        grad_down = call.weight_gradient(call.gate(inner), grad_outer)
    if needs[5]:
        grad_down_bias = call.bias_gradient(grad_outer)
    grad_inner = call.gate_gradient(inner, call.multiply(grad_outer, down, turned=True))
    if needs[2]:
        grad_gate_up = call.weight_gradient(rows, grad_inner)
    if needs[4]:
        grad_gate_up_bias = call.bias_gradient(grad_inner)
    # Always: another rank may need it, and none may wait for this one.
    grad_rows = call.return_rows(call.multiply(grad_inner, gate_up, turned=True))
    if needs[0]:
        grad_hidden = call.combine(grad_rows, None, grad.shape[0], call.route)
    grad_weights = grad_factors.to(ctx.dtype) if needs[1] else None
    stacks = grad_gate_up, grad_down, grad_gate_up_bias, grad_down_bias
    return grad_hidden, grad_weights, *stacks, None


_backward = differentiable_once(_gradients, NAME, factors=6)


def check_operands(
    hidden: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    stacks: Stacks,
    placement: Placement,
    rank: int,
    turned: bool,
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
    up, out = [own, 2 * inner, width], [own, width, inner]
    if turned:
        up, out = [own, width, 2 * inner], [own, inner, width]
    wanted = {
        "gate_up": (stacks.gate_up, up),
        "down": (stacks.down, out),
        "gate_up_bias": (stacks.gate_up_bias, [own, 2 * inner]),
        "down_bias": (stacks.down_bias, [own, width]),
    }
    for name, (one, shape) in wanted.items():
        if one is None:
            continue
        tensors.check(one, NAME, name)
        if list(one.shape) != shape:
            refuse(
                NAME,
                f"{who}, which has {own} of {len(placement.ranks)} experts: {name} is "
                f"{list(one.shape)}, not {shape}",
            )
        if one.dtype != hidden.dtype:
            refuse(NAME, f"{who}: hidden is {hidden.dtype}, and {name} {one.dtype}")


class ExpertParallel(nn.Module):
    """Experts that the ranks share: `forward` takes rows, their experts, and the weights of these.

    Its parameters are this rank's experts: `gate_up` and `down`, and perhaps their biases; see
    expert_parallel() for their shapes. A rank may have none.
    """

    gate_up: nn.Parameter
    down: nn.Parameter
    gate_up_bias: nn.Parameter | None
    down_bias: nn.Parameter | None

    def __init__(
        self,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        *,
        experts: int,
        gate_up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        placement: Sequence[int] | None = None,
        activation: Swiglu = _SWIGLU,
        transposed: bool = False,
        group: dist.ProcessGroup | None = None,
        options: Options = _DEFAULTS,
    ) -> None:
        super().__init__()
        check_options(options, type(self).__name__)
        given = (gate_up, down, gate_up_bias, down_bias)
        names = ("gate_up", "down", "gate_up_bias", "down_bias")
        for name, one in zip(names, given, strict=True):
            made = None if one is None else nn.Parameter(one, requires_grad=one.requires_grad)
            self.register_parameter(name, made)
        self.experts = experts
        self.placement = None if placement is None else tuple(placement)
        self.activation = activation
        self.transposed = transposed
        self.group = group
        self.options = options
        self._packs = Owner(), Owner()

    @classmethod
    def share(
        cls,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        *,
        gate_up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        placement: Sequence[int] | None = None,
        group: dist.ProcessGroup | None = None,
        **how: Any,
    ) -> "ExpertParallel":
        """Copy this rank's experts out of the stacks of all, which every rank has alike."""
        rank, world = group_place(group, f"{cls.__name__}.share")
        given = None if placement is None else tuple(placement)
        own = Placement.of(gate_up.shape[0], given, world).own(rank)
        gate_up_own, down_own, gate_up_bias_own, down_bias_own = (
            None if one is None else one.detach()[own].requires_grad_(one.requires_grad)
            for one in (gate_up, down, gate_up_bias, down_bias)
        )
        assert gate_up_own is not None
        assert down_own is not None
        return cls(
            gate_up_own,
            down_own,
            experts=gate_up.shape[0],
            gate_up_bias=gate_up_bias_own,
            down_bias=down_bias_own,
            placement=placement,
            group=group,
            **how,
        )

    def forward(
        self,
        hidden: torch.Tensor,
        top_k_index: torch.Tensor,
        top_k_weights: torch.Tensor,
        *,
        shared_batch: bool = False,
    ) -> torch.Tensor:
        """Return the weighted sum of each row's experts; leading dimensions are rows."""
        packs = self.options.fixed_weights and not tensors.require_gradients(
            self.gate_up, self.down
        )
        out = expert_parallel(
            hidden.flatten(0, -2),
            top_k_index.flatten(0, -2),
            top_k_weights.flatten(0, -2),
            self.gate_up,
            self.down,
            experts=self.experts,
            gate_up_bias=self.gate_up_bias,
            down_bias=self.down_bias,
            placement=self.placement,
            activation=self.activation,
            transposed=self.transposed,
            shared_batch=shared_batch,
            group=self.group,
            options=self.options,
            packs=self._packs if packs else (None, None),
        )
        return out.view(hidden.shape)

    def __deepcopy__(self, memo: dict[int, Any]) -> "ExpertParallel":
        memo[id(self.group)] = self.group  # groups can't be copied
        memo[id(self)] = copied = copy.copy(self)
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __copy__(self) -> "ExpertParallel":
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def extra_repr(self) -> str:
        """Describe this rank's share."""
        own, inner = self.down.shape[0], self.down.shape[1 if self.transposed else 2]
        width = self.down.shape[2 if self.transposed else 1]
        return f"experts={own} of {self.experts}, hidden={width}, inner={inner}"
