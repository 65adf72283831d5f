"""The two tensor-parallel linear layers as functions of tensors, with their gradients."""

import math
from typing import Any

import torch
import torch.distributed as dist

from plait import _native
from plait.errors import refuse
from plait.torch import direct, tensors, weights
from plait.torch.context import context_of
from plait.torch.engines.choice import choose, refuse_quantized
from plait.torch.engines.engine import Call, Kind
from plait.torch.engines.native import Native
from plait.torch.graphs import outside_of_graphs
from plait.torch.once import differentiable_once
from plait.torch.options import Options
from plait.torch.rows import as_rows, check_matrix, count_of_rows, shard_of_rows

_DEFAULTS = Options()


@outside_of_graphs
def column_parallel_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    group: dist.ProcessGroup | None = None,
    sequence_parallel: bool = False,
    rows: int | None = None,
    accumulate_into_main_grad: bool = False,
    options: Options = _DEFAULTS,
    layer: weights.Owner | None = None,
) -> torch.Tensor:
    """Multiply by this rank's outputs of a weight.

    >>> column_parallel_linear(torch.ones(2, 3), torch.ones(4, 3)).shape
    torch.Size([2, 4])

    `x` is [..., inputs], `weight` [outputs of this rank, inputs]. With `sequence_parallel`, the
    first dimension of `x` is this rank's shard, and the result has all of it: `rows`, or else the
    shard's size times the number of ranks. All ranks make the call; the gradient of `x` is summed
    over them. `accumulate_into_main_grad` adds the weight's gradient to `weight.main_grad`.
    """
    if layer is not None and not sequence_parallel and rows is None:
        out = direct.multiply("column", x, weight, bias, group, options, layer)
        if out is not None:
            return out
    tensors.refuse_tracing("column_parallel_linear", x)
    call = Call(
        kind="column",
        sequence_parallel=sequence_parallel,
        own_bias_gradient=False,
        main_grad=weight if accumulate_into_main_grad else None,
        layer=layer,
        rows=-1 if rows is None else count_of_rows(rows, "column_parallel_linear"),
    )
    return _apply(call, x, weight, bias, group, options)


@outside_of_graphs
def row_parallel_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    group: dist.ProcessGroup | None = None,
    sequence_parallel: bool = False,
    bias_gradient_of_own_rows: bool = False,
    accumulate_into_main_grad: bool = False,
    options: Options = _DEFAULTS,
    layer: weights.Owner | None = None,
) -> torch.Tensor:
    """Multiply by this rank's inputs of a weight, and add up over the ranks.

    >>> row_parallel_linear(torch.ones(2, 3), torch.ones(4, 3)).shape
    torch.Size([2, 4])

    `x` is [..., inputs of this rank], `weight` [outputs, inputs of this rank]. With
    `sequence_parallel` the result is this rank's shard of the first dimension. All ranks make the
    call. The bias is added once. Its gradient is of all rows, or of this rank's rows alone where
    the caller adds the ranks' gradients up.
    """
    if layer is not None and not sequence_parallel:
        out = direct.multiply("row", x, weight, bias, group, options, layer)
        if out is not None:
            return out
    tensors.refuse_tracing("row_parallel_linear", x)
    call = Call(
        kind="row",
        sequence_parallel=sequence_parallel,
        own_bias_gradient=bias_gradient_of_own_rows and sequence_parallel,
        main_grad=weight if accumulate_into_main_grad else None,
        layer=layer,
    )
    return _apply(call, x, weight, bias, group, options)


def _apply(
    call: Call,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    group: dist.ProcessGroup | None,
    options: Options,
) -> torch.Tensor:
    """Make a call that checks all there is to check."""
    if call.sequence_parallel and isinstance(x, torch.Tensor) and x.dim() == 1:
        refuse(call.name, "x has one dimension, and sequence_parallel needs another one to share")
    x, weight = tensors.resolved(x), tensors.resolved(weight)
    engine = call.engine = choose(call.name, (x, weight, bias), group, options)
    shape = _share_rows(call, x)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    operands = engine.prepare(call, rows, weight, bias)
    if tensors.wants_gradient(*operands):
        call.is_direct = False
        out: torch.Tensor = _Linear.apply(*operands, call)  # type: ignore[no-untyped-call]
    else:
        out = engine.forward(call, *operands)
    return out.reshape(*shape, weight.shape[0])


def _share_rows(call: Call, x: torch.Tensor) -> tuple[int, ...]:
    """Count the rows of all ranks, and return all but the last dimension of this rank's result."""
    if x.dim() == 1:
        call.rows = 1
        return ()
    first, inner, given = x.shape[0], math.prod(x.shape[1:-1]), call.rows
    if not call.sequence_parallel:
        if given >= 0 and given != first:
            sentence = f"rows is {given}, but x has {first}, all of them without sequence_parallel"
            refuse(call.name, sentence)
        call.rows = first * inner
        return x.shape[:-1]
    rank, world = call.engine.place()
    if call.kind == "column":
        first = first * world if given < 0 else given
    call.rows = first * inner
    own = shard_of_rows(first, inner, rank, world, call.name)
    return (first if call.kind == "column" else own), *x.shape[1:-1]


@outside_of_graphs
def quantized_linear(
    kind: Kind,
    x: torch.Tensor,
    weight: _native.PackedWeight,
    bias: torch.Tensor | None = None,
    *,
    group: dist.ProcessGroup | None = None,
    options: Options = _DEFAULTS,
    layer: weights.Owner | None = None,
) -> torch.Tensor:
    """Multiply by this rank's share of a quantised weight, without gradients."""
    name = f"{kind}_parallel_linear"
    tensors.refuse_tracing(name, x)
    x = tensors.resolved(x)
    tensors.check(x, name, "x")
    if x.dim() == 0 or x.shape[-1] != weight.k:
        refuse(name, f"x is {list(x.shape)}; its last dimension must be {weight.k}")
    refuse_quantized(name, options.engine)
    if torch.is_grad_enabled() and x.requires_grad:
        refuse(
            name,
            "x requires a gradient, and products by quantised weights have none; "
            "call it under torch.no_grad()",
        )
    x, bias = tensors.by_autocast(x, bias)
    rows = x.detach().reshape(math.prod(x.shape[:-1]), x.shape[-1])
    check_matrix(rows, name, "x")
    rows = as_rows(rows)
    call = Call(kind, False, False, None, layer, rows.shape[0])
    call.owner = layer or weights.Owner()
    engine = Native(context_of(group, options, name))
    out = engine.multiply_quantized(call, rows, weight, bias)
    return out.reshape(*x.shape[:-1], weight.n)


class _Linear(torch.autograd.Function):
    """Rows by a weight. A backward takes the x that autograd hands it, not the one forward saw."""

    @staticmethod
    def forward(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, call: Call
    ) -> torch.Tensor:
        return call.engine.forward(call, x, weight, bias)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor, Any, Call], output: torch.Tensor
    ) -> None:
        x, weight, _, call = inputs
        keeps_x = ctx.needs_input_grad[1] and call.state is None
        ctx.save_for_backward(x if keeps_x else None, weight)
        ctx.call = call

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        call: Call = ctx.call
        needs = ctx.needs_input_grad[:3]
        return *call.engine.backward(call, needs, grad_out, *ctx.saved_tensors), None
