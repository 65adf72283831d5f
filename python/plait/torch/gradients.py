"""The gradients of the operators of torch: importing this module registers them.

The way through torch's dispatcher to a gradient that torch.library.register_autograd() knows takes
several times as long as all else in a small call. So a call of plain tensors that nothing traces,
compiles or transforms goes to an autograd.Function of the same rules. Calls by torch.ops do so too
with a torch that has what it takes to pass other calls on to torch's own kernel, for which there is
no public name; with any other torch, they all go through torch's own kernel.
"""

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from plait._native import Code
from plait.errors import Error
from plait.torch import gradient_operators, tensors  # noqa: F401  # the first registers itself
from plait.torch.context import Context
from plait.torch.definitions import LIBRARY
from plait.torch.engines.engine import Pair
from plait.torch.how import (
    How,
    context_for,
    is_c10d,
    known_context_for,
    size_of_group,
    turned_and_rows,
)
from plait.torch.library import GATHERED, OPERATORS
from plait.torch.once import differentiable_once
from plait.torch.rows import own_rows

_ops = torch.ops.plait
_FUNCTIONALIZE = torch._C.DispatchKey.Functionalize
_Gradients = tuple[torch.Tensor | None, ...]


def _private_names() -> tuple[Any, Any, int] | None:
    """Return what makes torch's own kernel of a rule, and the keys of calls that need no other.

    None: torch has other names for them by now.
    """
    try:
        names = vars(importlib.import_module("torch._library.autograd"))
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        plain = keys.add(torch._C.DispatchKey.AutogradCPU).raw_repr()
        return names["make_autograd_impl"], names["Info"], plain
    except (ImportError, KeyError, AttributeError):
        return None


_PRIVATE = _private_names()
_USUAL = False, -1  # turned_and_rows() of most calls


def _save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    ctx.how = tuple(inputs[3:7])  # group, schedule, parts, wire
    ctx.turned = inputs[7]
    ctx.save_for_backward(inputs[0], inputs[1])


# Each takes the gradient of the result, and says what the gradient of x is, and by which rows the
# gradients of weight and bias are made: of the result and of x.
_Rule = Callable[[Any, torch.Tensor, torch.Tensor, torch.Tensor], Any]
# Takes how many arguments there are after x, weight and bias, and the gradients of the results.
_Backward = Callable[..., _Gradients]
# Returns what is saved for backward in the place of x, of the results.
_Saved = Callable[[Any, Any], torch.Tensor] | None

# Calls whose gradients are made by an autograd.Function: of x, weight, bias, context, whether the
# weight is turned, and the rows of all ranks.
DIFFERENTIATED: dict[str, Callable[..., Any]] = {}


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


def _differentiate(name: str, rule: _Rule) -> None:
    def backward(arguments: int, ctx: Any, grad: torch.Tensor) -> _Gradients:
        x, weight = ctx.saved_tensors
        return _gradients(ctx, arguments, *rule(ctx, grad, x, weight))

    _register(name, 6 if OPERATORS[name].gathers else 5, backward, _save, None)


def _register(
    name: str, arguments: int, backward: _Backward, save: Callable[..., None], saved: _Saved
) -> None:
    """Register both ways to the gradient; `arguments` are those after the bias."""
    by_dispatcher = differentiable_once(functools.partial(backward, arguments), name)
    torch.library.register_autograd(
        f"plait::{name}", by_dispatcher, setup_context=save, lib=LIBRARY
    )
    kernel, has_operator = OPERATORS[name].run_native, name != GATHERED

    # Without setup_context(), for which torch would inspect a signature in each call.
    def forward(
        ctx: Any, x: Any, weight: Any, bias: Any, context: Context, turned: bool, rows: int
    ) -> Any:
        out = None
        if has_operator:  # the kernel would do the same, in two more functions of Python
            out = context.operators[name].run(x, weight, bias, turned, rows)
        if out is None:
            out = kernel(x, weight, bias, context, turned, rows)
        ctx.save_for_backward(x if saved is None else saved(ctx, out), weight)
        ctx.how, ctx.turned, ctx.context = context.how, turned, context.itself
        return out

    def by_kernel(ctx: Any, *grads: Any) -> _Gradients:
        _check_group(ctx, name)
        return backward(3, ctx, *grads)

    function: Any = type(
        name,
        (torch.autograd.Function,),
        {
            "forward": staticmethod(forward),
            "backward": staticmethod(differentiable_once(by_kernel, name)),
        },
    )
    # torch.autograd.Function's own apply() looks for transforms of functions before it calls this.
    DIFFERENTIATED[name] = super(torch.autograd.Function, function).apply
    if _PRIVATE is not None:
        make_kernel, info, plain_keys = _PRIVATE
        rule = info(_backward_fn=by_dispatcher, _setup_context_fn=save)
        _go_round(name, make_kernel(getattr(_ops, name).default, rule), plain_keys)


def _check_group(ctx: Any, name: str) -> None:
    """Refuse a gradient in another group, which was given the name of the call's own."""
    context = ctx.context()
    if context is None or context_for(How(*ctx.how), name).comm is not context.comm:
        raise Error(
            Code.invalid_argument,
            f"{name}: the process group {ctx.how[0]!r} was destroyed between a call and its "
            "gradient",
            operator=name,
        )


def _go_round(name: str, made_by_torch: Callable[..., Any], plain_keys: int) -> None:
    """Let calls by torch.ops go round torch's own kernel of a gradient where they can.

    Other keys than the plain ones tell of modes, transforms, and views that negate.
    """
    kernel, differentiated = OPERATORS[name].run_native, DIFFERENTIATED[name]
    has_operator = name != GATHERED

    def autograd(keys: Any, x: Any, weight: Any, bias: Any, *how: Any) -> Any:
        if has_operator and keys.raw_repr() == plain_keys and forward_ad._current_level < 0:
            known = known_context_for(how)
            if known is not None:
                turned, rows = _USUAL if len(how) < 5 else turned_and_rows(how)
                out = known.operators[name].call(x, weight, bias, turned, rows)
                if out is NotImplemented:
                    return differentiated(x, weight, bias, known, turned, rows)
                if out is not None:
                    return out
        by_torch = is_c10d(how) or keys.has(_FUNCTIONALIZE)
        if by_torch or not tensors.are_for_kernels(x, weight, bias):
            operands = {"x": x, "weight": weight, "bias": bias}
            if tensors.require_gradients(x, weight, bias):
                tensors.refuse_transforms(name, operands)
            else:
                tensors.refuse_tangents(name, operands)
            return made_by_torch(keys, x, weight, bias, *how)
        given = How(*how)
        context = context_for(given, name, how)
        if tensors.require_gradients(x, weight, bias):
            return differentiated(x, weight, bias, context, given.turned, given.rows)
        return kernel(x, weight, bias, context, given.turned, given.rows)

    LIBRARY.impl(name, autograd, "AutogradCPU", with_keyset=True)


def _local(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    return _ops.matmul(grad, weight, None, *ctx.how, not ctx.turned), grad, lambda: x


def _scattered(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    grad_x, all_rows = _ops.all_gather_matmul_gathered(
        grad, weight, None, *ctx.how, not ctx.turned, x.shape[0]
    )
    return grad_x, all_rows, lambda: x


def _gathered(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    grad_x = _ops.matmul_reduce_scatter(grad, weight, None, *ctx.how, not ctx.turned)
    return grad_x, grad, lambda: _ops.all_gather_rows(x, ctx.how[0], grad.shape[0], ctx.how[1])


def _own(ctx: Any, grad: torch.Tensor, operator: str) -> torch.Tensor:
    """Return this rank's rows of the gradient of all rows, which every rank has alike."""
    rank, size = place = size_of_group(ctx.how[0], operator)
    m = grad.shape[0]
    begin = rank * (m // size) + min(rank, m % size)
    return grad[begin : begin + own_rows(m, lambda: place, -1)]


def _gathered_after(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    return _local(ctx, _own(ctx, grad, "matmul_all_gather"), x, weight)


def _summed(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    grad_x, grad_rows, _ = _local(ctx, grad, x, weight)
    return grad_x, grad_rows, lambda: _ops.all_reduce_rows(x, *ctx.how[:2])


def _summed_own(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    grad_x = _ops.all_gather_matmul(grad, weight, None, *ctx.how, not ctx.turned, x.shape[0])
    return grad_x, grad, lambda: _ops.reduce_scatter_rows(x, *ctx.how[:2])


def _saved_gathered(ctx: Any, output: Pair) -> torch.Tensor:
    ctx.set_materialize_grads(False)  # most programs use one of the two
    return output[1]


def _save_gathered(ctx: Any, inputs: Sequence[Any], output: Pair) -> None:
    _save(ctx, (_saved_gathered(ctx, output), *inputs[1:]), output)


def _gathered_too(
    arguments: int, ctx: Any, grad: torch.Tensor | None, grad_gathered: Any
) -> _Gradients:
    """Differentiate all_gather_matmul with its gathered x, which needs no other gather here."""
    gathered, weight = ctx.saved_tensors
    if grad is None:
        grad = gathered.new_zeros(gathered.shape[0], weight.shape[1 if ctx.turned else 0])
    grad_x = _ops.matmul_reduce_scatter(grad, weight, None, *ctx.how, not ctx.turned)
    if grad_gathered is not None:
        grad_x = grad_x + _own(ctx, grad_gathered, "all_gather_matmul")
    return _gradients(ctx, arguments, grad_x, grad, lambda: gathered)


_register(GATHERED, 6, _gathered_too, _save_gathered, _saved_gathered)
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
        "x requires a gradient, and products by quantised weights have none; "
        "call the operator under torch.no_grad()",
    )


def _no_gradient(ctx: Any, *grads: torch.Tensor) -> _Gradients:
    return ()  # there is no graph that has it: its forward raised


for _name in OPERATORS:
    torch.library.register_autograd(
        f"plait::{_name}_quantized", _no_gradient, setup_context=_refuse_a_gradient, lib=LIBRARY
    )
