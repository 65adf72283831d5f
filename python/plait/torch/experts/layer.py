"""The layer of experts as a function of tensors, with its gradients, and as a module."""

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode

from plait.errors import refuse
from plait.torch import tensors
from plait.torch.context import context_of, group_place
from plait.torch.experts import counts, direct, in_graphs
from plait.torch.experts.call import Activation, Call, Stacks, Swiglu, run_backward, run_forward
from plait.torch.experts.checks import check_operands, check_schedule
from plait.torch.experts.placement import NAME, Placement
from plait.torch.graphs import outside_of_graphs
from plait.torch.once import differentiable_once
from plait.torch.options import Options, check_options
from plait.torch.rows import as_rows
from plait.torch.weights import Owner

_DEFAULTS = Options()
_SWIGLU = Swiglu()


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
    parts: int = 1,
    placement: Sequence[int] | None = None,
    activation: Activation = _SWIGLU,
    transposed: bool = False,
    shared_batch: bool = False,
    shared: Callable[[torch.Tensor], torch.Tensor] | None = None,
    group: dist.ProcessGroup | None = None,
    options: Options = _DEFAULTS,
    owners: tuple[Owner, Owner] | None = None,
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
    uneven. A rank's experts lie in the order of their numbers. With the activation Silu, `gate_up`
    has gates alone, F of them.

    With `parts`, each expert is cut in as many equal parts of its F, which may be on different
    ranks: tensor parallelism inside experts. Part p of expert e is number e * `parts` + p, in
    `placement` and in the stacks, whose F is that of a part: `gate_up` has the gates and ups of the
    same features. If `placement` is not given and the number of ranks is a multiple of `parts`,
    each run of `parts` ranks has experts of its own. The parts' results are added before they are
    weighted, in f32: with the wire f32, parts that are nodes of the sum and no `down_bias`, `out`
    has the bits of whole experts. Every part has a `down_bias`, of which that of part 0 is used.

    All ranks make the call, with as many rows as they like, and all or none want gradients and call
    its backward; ranks that differ in what they want are refused. `shared_batch` says that all
    ranks have the same rows, experts and weights: no row is sent before it is multiplied. It is for
    inference.

    `shared` is an expert that all rows have, with weights of this rank: `shared(hidden)` is added
    to the result, with gradients. It is computed when the call would wait for other ranks, whose
    rows go on travelling between its functions of torch, and makes no call of plait's over the same
    group.

    In a graph of torch.compile() a call is one operator, and another one in backward. The graph
    computes `shared` after it. A call whose `options` have settings of their own ends the graph.
    """
    ranks = None if placement is None else tuple(placement)
    given = (gate_up, down, gate_up_bias, down_bias)
    operands = (hidden, top_k_index, top_k_weights)
    if is_compiling() and _fits_graphs(options, owners):
        whole = in_graphs.how_of(
            group, options, experts, parts, ranks, activation, transposed, shared_batch
        )
        return in_graphs.multiply(operands, given, owners, whole, shared)
    how = (experts, ranks, parts, activation, transposed, shared_batch)
    if owners is not None and shared is None and not is_compiling():
        made = direct.multiply(owners, *operands, given, how, group, options)
        if made is not None:
            return made
    return _checked(operands, given, how, shared, group, options, owners)


def _fits_graphs(options: Options, owners: tuple[Owner, Owner] | None) -> bool:
    """Say whether a graph's plain arguments tell all of a call; others are made between graphs."""
    if not isinstance(options, Options) or options.engine != "native":
        return False  # it is refused
    if options.fixed_weights and owners is not None and owners[0].number is None:
        return False  # a graph would not find what is packed
    return options.settings is None


@outside_of_graphs
def _checked(
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    given: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None],
    how: direct.How,
    shared: Callable[[torch.Tensor], torch.Tensor] | None,
    group: dist.ProcessGroup | None,
    options: Options,
    owners: tuple[Owner, Owner] | None,
) -> torch.Tensor:
    """Make a call that is not as one before it."""
    hidden, ids, weights = operands
    experts, ranks, parts, activation, turned, shared_batch = how
    check_options(options, NAME)
    tensors.refuse_tracing(NAME, hidden)
    check_schedule(options)
    hidden = tensors.resolved(hidden)
    stacks = Stacks(*given)
    is_last = not tensors.wants_gradient(hidden, weights, *given)
    if owners is not None and options.fixed_weights and is_last:
        stacks.packs = owners
    rank, world = group_place(group, NAME)
    placed = Placement.of(experts, ranks, world, parts)
    is_cast = torch.is_autocast_enabled("cpu")
    if is_cast:
        dtype = torch.get_autocast_dtype("cpu")
        hidden = tensors.cast(hidden, dtype)
        stacks = stacks.cast(dtype)
    check_operands(hidden, ids, weights, stacks, placed, rank, turned, activation.widths)
    call = Call(placed, context_of(group, options, NAME), activation, turned, shared_batch)
    if shared is None:
        out = apply(call, hidden, ids, weights, stacks)
        if owners is not None and is_last and not is_cast:
            direct.keep(owners, call, how, options, hidden, ids.shape[1], stacks)
        return out
    beside = _Beside(shared, hidden)
    call.beside = beside
    out = apply(call, hidden, ids, weights, stacks)
    call.beside = None  # the call is kept for its gradients
    return out + beside.out


class _Polling(TorchFunctionMode):
    """Lets rows go on travelling after each function of torch."""

    def __init__(self, poll_step: Callable[[], None]):
        super().__init__()
        self.poll_step = poll_step

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.poll_step()
        return out


class _Beside:
    """An expert that all rows have, in the gradient mode of the caller."""

    out: torch.Tensor

    def __init__(self, shared: Callable[[torch.Tensor], torch.Tensor], hidden: torch.Tensor):
        self.shared, self.hidden = shared, hidden
        self.grads = torch.is_grad_enabled()

    def __call__(self, poll_step: Callable[[], None]) -> None:
        # autograd's functions run without gradients
        with torch.set_grad_enabled(self.grads), _Polling(poll_step):
            self.out = self.shared(self.hidden)


def apply(
    call: Call,
    hidden: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    stacks: Stacks,
) -> torch.Tensor:
    """Make a call whose operands are checked."""
    begin = time.perf_counter_ns()
    hidden = as_rows(hidden)
    ids = ids.to(torch.int64).contiguous()
    operands = (hidden, weights, *stacks.tensors())
    if tensors.wants_gradient(*operands):
        if call.shared_batch:
            refuse(NAME, "shared_batch is for inference; call it under torch.no_grad()")
        out, counted = _Experts.apply(*operands, ids, call)  # type: ignore[no-untyped-call]
    else:
        out, counted = run_forward(call, hidden, ids, weights.detach(), stacks)
    key = counts.key_of(call, hidden, ids.shape[1], stacks.down)
    counts.add(key, counted, time.perf_counter_ns() - begin)
    return out  # type: ignore[no-any-return]


class _Experts(torch.autograd.Function):
    """The whole layer. It keeps its operands alone: rows travel again with their gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weights: torch.Tensor,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        gate_up_bias: torch.Tensor | None,
        down_bias: torch.Tensor | None,
        ids: torch.Tensor,
        call: Call,
    ) -> tuple[torch.Tensor, tuple[int, list[int]]]:
        stacks = Stacks(gate_up, down, gate_up_bias, down_bias)
        ctx.call = call
        ctx.save_for_backward(hidden, ids, weights, *stacks.tensors())
        return run_forward(call, hidden, ids, weights, stacks, gradients=True)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
        return _backward(ctx, grad)


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    hidden, ids, weights, *given = ctx.saved_tensors
    made = run_backward(ctx.call, grad, hidden, ids, weights, Stacks(*given), ctx.needs_input_grad)
    return *made, None, None


_backward = differentiable_once(_gradients, NAME, factors=6, linear=False)


class ExpertParallel(nn.Module):
    """Experts that the ranks share: `forward` takes rows, their experts, and the weights of these.

    Its parameters are this rank's experts, or parts of experts: `gate_up` and `down`, and perhaps
    their biases; see expert_parallel() for their shapes. A rank may have none.
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
        parts: int = 1,
        placement: Sequence[int] | None = None,
        activation: Activation = _SWIGLU,
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
        self.parts = parts
        self.placement = None if placement is None else tuple(placement)
        self.activation = activation
        self.transposed = transposed
        self.group = group
        self.options = options
        self._owners = Owner(numbered=True), Owner(numbered=True)

    @classmethod
    def share(
        cls,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        *,
        gate_up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        parts: int = 1,
        placement: Sequence[int] | None = None,
        activation: Activation = _SWIGLU,
        transposed: bool = False,
        group: dist.ProcessGroup | None = None,
        **how: Any,
    ) -> "ExpertParallel":
        """Copy this rank's experts, or parts, out of all stacks, which every rank has alike."""
        rank, world = group_place(group, f"{cls.__name__}.share")
        given = None if placement is None else tuple(placement)
        own = Placement.of(gate_up.shape[0], given, world, parts).own(rank)
        inner = down.shape[1 if transposed else 2]
        if inner % parts != 0:
            refuse(NAME, f"{parts} equal parts can't be cut from experts with F = {inner}")
        halves = 1 if activation.interleaved else activation.widths
        cuts = {
            "gate_up": (gate_up, 2 if transposed else 1, halves),
            "down": (down, 1 if transposed else 2, 1),
            "gate_up_bias": (gate_up_bias, 1, halves),
            "down_bias": (down_bias, None, 1),
        }
        taken: dict[str, Any] = {
            name: None if one is None else _taken(one, own, parts, dim, halves)
            for name, (one, dim, halves) in cuts.items()
        }
        return cls(
            **taken,
            experts=gate_up.shape[0],
            parts=parts,
            placement=placement,
            activation=activation,
            transposed=transposed,
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
        shared: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """Return the weighted sum of each row's experts; leading dimensions are rows."""
        rows, ids, weights = hidden, top_k_index, top_k_weights
        if hidden.dim() != 2:  # flattening takes as long as half of a small call
            rows, ids, weights = rows.flatten(0, -2), ids.flatten(0, -2), weights.flatten(0, -2)
        out = expert_parallel(
            rows,
            ids,
            weights,
            self.gate_up,
            self.down,
            experts=self.experts,
            gate_up_bias=self.gate_up_bias,
            down_bias=self.down_bias,
            parts=self.parts,
            placement=self.placement,
            activation=self.activation,
            transposed=self.transposed,
            shared_batch=shared_batch,
            shared=shared,
            group=self.group,
            options=self.options,
            owners=self._owners,
        )
        return out if rows is hidden else out.view(hidden.shape)

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
        parts = "" if self.parts == 1 else f" in {self.parts} parts"
        return f"experts={own} of {self.experts}{parts}, hidden={width}, inner={inner}"


def _taken(
    stack: torch.Tensor, own: list[int], parts: int, dim: int | None, halves: int
) -> torch.Tensor:
    """Copy parts out of whole experts; `dim` has their features, gates and ups as halves."""
    experts = [number // parts for number in own]
    pieces = stack.detach()
    if dim is None or parts == 1:
        pieces = pieces[experts]
    else:  # [E, ..., halves, parts, F / parts, ...] to [E, parts, ..., halves, F / parts, ...]
        pieces = pieces.unflatten(dim, (halves, parts, -1)).movedim(dim + 1, 1)
        pieces = pieces[experts, [number % parts for number in own]].flatten(dim, dim + 1)
    return pieces.requires_grad_(stack.requires_grad)
