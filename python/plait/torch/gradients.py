"""The gradients of the operators of torch: importing this module registers them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from plait._native import Code
from plait.errors import Error
from plait.torch.library import GATHERED, LIBRARY, OPERATORS, Pair, size_of_group

_ops = torch.ops.plait
_Gradients = tuple[torch.Tensor | None, ...]


def _save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    x, weight = inputs[:2]
    ctx.how = tuple(inputs[3:7])  # group, schedule, parts, wire
    ctx.turned = inputs[7]
    ctx.save_for_backward(x, weight)
    ctx.rows = (x.shape[0], output.shape[0])


# Each takes the gradient of the result, and says what the gradient of x is, and by which rows the
# gradients of weight and bias are made: of the result and of x.
_Backward = Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], Any]


def _gradients(
    ctx: Any,
    arguments: int,
    grad_x: torch.Tensor,
    grad_rows: torch.Tensor,
    x_rows: Callable[[], torch.Tensor],
) -> _Gradients:
    """Return the gradients of x, weight and bias, and None for each argument after them."""
    needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
    grad_weight = None
    if needs_weight:
        left, right = (x_rows(), grad_rows) if ctx.turned else (grad_rows, x_rows())
        grad_weight = _ops.weight_gradient(left, right)
    grad_bias = grad_rows.sum(0) if needs_bias else None
    return (grad_x if needs_x else None, grad_weight, grad_bias, *(None,) * arguments)


def _differentiate(name: str, rule: _Backward) -> None:
    arguments = 6 if OPERATORS[name].gathers else 5

    def backward(ctx: Any, grad: torch.Tensor) -> _Gradients:
        x, weight = ctx.saved_tensors
        return _gradients(ctx, arguments, *rule(ctx, grad, x, weight))

    torch.library.register_autograd(
        f"plait::{name}", once_differentiable(backward), setup_context=_save, lib=LIBRARY
    )


def _local(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    return _ops.matmul(grad, weight, None, *ctx.how, not ctx.turned), grad, lambda: x


def _scattered(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    grad_x, all_rows = _ops.all_gather_matmul_gathered(
        grad, weight, None, *ctx.how, not ctx.turned, ctx.rows[0]
    )
    return grad_x, all_rows, lambda: x


def _gathered(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    grad_x = _ops.matmul_reduce_scatter(grad, weight, None, *ctx.how, not ctx.turned)
    return grad_x, grad, lambda: _ops.all_gather_rows(x, ctx.how[0], ctx.rows[1])


def _own(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    """Return this rank's rows of the gradient of all rows, which every rank has alike."""
    rank, size = size_of_group(ctx.how[0])
    m, own = ctx.rows[1], ctx.rows[0]
    begin = rank * (m // size) + min(rank, m % size)
    return grad[begin : begin + own]


def _gathered_after(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    return _local(ctx, _own(ctx, grad), x, weight)


def _summed(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    grad_x, grad_rows, _ = _local(ctx, grad, x, weight)
    return grad_x, grad_rows, lambda: _ops.all_reduce_rows(x, ctx.how[0])


def _summed_own(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    grad_x = _ops.all_gather_matmul(grad, weight, None, *ctx.how, not ctx.turned, ctx.rows[0])
    return grad_x, grad, lambda: _ops.reduce_scatter_rows(x, ctx.how[0])


def _save_gathered(ctx: Any, inputs: Sequence[Any], output: Pair) -> None:
    out, gathered = output
    _save(ctx, (gathered, *inputs[1:]), out)
    ctx.rows = (inputs[0].shape[0], out.shape[0])
    ctx.set_materialize_grads(False)  # most programs use one of the two


def _gathered_too(ctx: Any, grad: torch.Tensor | None, grad_gathered: Any) -> _Gradients:
    """Differentiate all_gather_matmul with its gathered x, which needs no other gather here."""
    gathered, weight = ctx.saved_tensors
    if grad is None:
        grad = gathered.new_zeros(ctx.rows[1], weight.shape[1 if ctx.turned else 0])
    grad_x = _ops.matmul_reduce_scatter(grad, weight, None, *ctx.how, not ctx.turned)
    if grad_gathered is not None:
        grad_x = grad_x + _own(ctx, grad_gathered)
    return _gradients(ctx, 6, grad_x, grad, lambda: gathered)


torch.library.register_autograd(
    f"plait::{GATHERED}",
    once_differentiable(_gathered_too),
    setup_context=_save_gathered,
    lib=LIBRARY,
)
_differentiate("matmul", _local)
_differentiate("matmul_all_reduce", _local)
_differentiate("matmul_reduce_scatter", _scattered)
_differentiate("matmul_all_gather", _gathered_after)
_differentiate("all_gather_matmul", _gathered)
_differentiate("reduce_scatter_matmul", _summed_own)
_differentiate("all_reduce_matmul", _summed)


def _refuse_a_gradient(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    raise Error(
        Code.invalid_argument,
        "x requires a gradient, and a quantised weight has none to give; "
        "call the operator under torch.no_grad()",
    )


def _no_gradient(ctx: Any, *grads: torch.Tensor) -> _Gradients:
    return ()  # there is no graph that has it: its forward raised


for _name in (*OPERATORS, GATHERED):
    torch.library.register_autograd(
        f"plait::{_name}_quantized", _no_gradient, setup_context=_refuse_a_gradient, lib=LIBRARY
    )
