"""The two layers on any device, by an engine's products: torch's, or plait's own on a GPU."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from plait.errors import refuse
from plait.torch import tensors
from plait.torch.c10d import Pending, Products
from plait.torch.main_grad import main_grad_on, placeholder
from plait.torch.once import differentiable_once
from plait.torch.rows import shard_of_rows


@dataclass
class Call:
    """How a layer is called."""

    name: str  # of the function
    products: Products
    sequence_parallel: bool
    rows: int | None  # of the first dimension, of all ranks together
    parameter: torch.Tensor | None  # whose main_grad takes the weight's gradient


def column_parallel_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, call: Call
) -> torch.Tensor:
    """Do what plait.torch.column_parallel_linear does."""
    x, weight, bias = _operands(x, weight, bias, call)
    first, inner = x.shape[0] if x.dim() > 1 else 1, math.prod(x.shape[1:-1])
    if call.sequence_parallel:
        rank, world = call.products.place()
        first = first * world if call.rows is None else call.rows
        own = shard_of_rows(first, inner, rank, world, call.name)
        if x.shape[0] != own:
            refuse(
                call.name,
                f"x has {x.shape[0] * inner} rows, and rank {rank} of {world} has {own * inner} "
                f"of {first * inner}",
            )
    rows = first * inner
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out: torch.Tensor = _Column.apply(flat, weight, bias, call, rows)  # type: ignore[no-untyped-call]
    return out.reshape(*((first, *x.shape[1:-1]) if x.dim() > 1 else ()), weight.shape[0])


def row_parallel_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    call: Call,
    bias_gradient_of_own_rows: bool,
) -> torch.Tensor:
    """Do what plait.torch.row_parallel_linear does."""
    x, weight, bias = _operands(x, weight, bias, call)
    first = x.shape[0] if x.dim() > 1 else 1
    if call.sequence_parallel:
        first = shard_of_rows(first, math.prod(x.shape[1:-1]), *call.products.place(), call.name)
    own_bias_gradient = bias_gradient_of_own_rows and call.sequence_parallel
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out: torch.Tensor = _Row.apply(flat, weight, bias, call, own_bias_gradient)  # type: ignore[no-untyped-call]
    return out.reshape(*((first, *x.shape[1:-1]) if x.dim() > 1 else ()), weight.shape[0])


def _operands(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, call: Call
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
        if isinstance(tensor, DTensor):
            refuse(
                call.name,
                f"{name} is a DTensor; plait takes plain tensors, such as its local part",
            )
    tensors.refuse_transforms(call.name, {"x": x, "weight": weight, "bias": bias})
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight = tensors.cast(x, dtype), tensors.cast(weight, dtype)
        bias = None if bias is None else tensors.cast(bias, dtype)
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        refuse(
            call.name,
            f"x is {list(x.shape)} and weight {list(weight.shape)}; weight must have two "
            "dimensions, and the last dimensions must be equal",
        )
    if call.sequence_parallel and x.dim() == 1:
        refuse(call.name, "x has one dimension, and sequence_parallel needs another one to share")
    if x.dtype != weight.dtype or x.device != weight.device:
        refuse(
            call.name,
            f"x is {x.dtype} on {x.device}, and weight {weight.dtype} on {weight.device}",
        )
    if bias is not None and bias.device != x.device:
        refuse(call.name, f"x is on {x.device}, and bias on {bias.device}")
    if bias is not None and list(bias.shape) != [weight.shape[0]]:
        refuse(call.name, f"bias is {list(bias.shape)}, not [{weight.shape[0]}]")
    if call.parameter is not None and tensors.require_gradients(call.parameter):
        main_grad_on(x.device, call.parameter, call.name)
    return x, weight, None if bias is None else bias.to(x.dtype)


_Gradients = tuple[torch.Tensor | None, ...]


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, _, call, last = inputs
    needs_weight = ctx.needs_input_grad[1]
    ctx.save_for_backward(x if needs_weight else None, weight)
    ctx.call, ctx.last = call, last


def _weight_gradient(call: Call, grad_out: torch.Tensor, x: torch.Tensor) -> torch.Tensor | None:
    """Return grad_out transposed by x, or add it to main_grad."""
    if call.parameter is None:
        return torch.mm(grad_out.t(), x)
    main_grad = main_grad_on(x.device, call.parameter, call.name)
    if main_grad.dtype == x.dtype:
        main_grad.addmm_(grad_out.t(), x)
    elif x.is_cuda and main_grad.dtype == torch.float32:  # a product that is not rounded before
        main_grad.add_(torch.mm(grad_out.t(), x, out_dtype=torch.float32))
    else:
        main_grad.add_(torch.mm(grad_out.t(), x))
    return placeholder(call.parameter, grad_out.new_empty(grad_out.shape[1], x.shape[1]))


class _Column(torch.autograd.Function):
    """Rows of all ranks by this rank's outputs."""

    @staticmethod
    def forward(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, call: Call, rows: int
    ) -> torch.Tensor:
        if call.sequence_parallel:
            return call.products.all_gather_matmul(x, weight.t(), rows, bias)
        return call.products.matmul(x, weight.t(), bias)

    setup_context = staticmethod(_save)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_out: torch.Tensor) -> _Gradients:
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        x, weight = ctx.saved_tensors
        call: Call = ctx.call
        gathering: Pending | None = None
        if needs_weight and call.sequence_parallel:  # beside the product of grad_x
            gathering = call.products.gathering(x, ctx.last)
        summing: Pending | None = None
        if needs_x:  # its sum goes on beside the product of the weight's gradient
            products = call.products
            begin = products.scattering if call.sequence_parallel else products.summing
            summing = begin(grad_out, weight)
        grad_weight = None
        if needs_weight:
            all_x = x if gathering is None else gathering.wait()
            grad_weight = _weight_gradient(call, grad_out, all_x)
        grad_bias = grad_out.sum(0) if needs_bias else None
        grad_x = None if summing is None else summing.wait()
        return grad_x, grad_weight, grad_bias, None, None


class _Row(torch.autograd.Function):
    """All rows by this rank's inputs, added up over the ranks."""

    @staticmethod
    def forward(
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        call: Call,
        own_bias_gradient: bool,
    ) -> torch.Tensor:
        products = call.products
        multiply = (
            products.matmul_reduce_scatter if call.sequence_parallel else products.matmul_all_reduce
        )
        return multiply(x, weight.t(), bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        _save(ctx, inputs, output)
        ctx.rows = inputs[0].shape[0]

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_out: torch.Tensor) -> _Gradients:
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        x, weight = ctx.saved_tensors
        call: Call = ctx.call
        own_grad = grad_out
        grad_x = None
        if call.sequence_parallel:
            grad_out = own_grad.new_empty(ctx.rows, own_grad.shape[1])
            grad_x = call.products.all_gather_matmul(own_grad, weight, ctx.rows, gathered=grad_out)
        elif needs_x:
            grad_x = call.products.matmul(grad_out, weight)
        grad_weight = _weight_gradient(call, grad_out, x) if needs_weight else None
        grad_bias = None
        if needs_bias:
            grad_bias = (own_grad if ctx.last else grad_out).sum(0)
        return grad_x if needs_x else None, grad_weight, grad_bias, None, None
