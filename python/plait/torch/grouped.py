"""Products of groups of rows, each by a weight of its own, such as the experts of a layer.

    y = plait.torch.grouped_linear(x, weight, rows)  # [rows of all, k] by [groups, n, k]

The rows of the first group come first. It is an operator of torch, of this process alone, which
differentiates, compiles and exports. The bits of a row are those of a product by its weight alone,
so they depend neither on the other rows nor on the groups. The gradient of a weight is the sum over
the rows of its group, in their order.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch

from plait import _native
from plait.errors import refuse
from plait.torch import tensors
from plait.torch.definitions import LIBRARY, define
from plait.torch.once import differentiable_once
from plait.torch.rows import as_rows, float_dtype, view

_ops = torch.ops.plait
_NAME = "grouped_linear"
_LAYOUTS = (_native.WeightLayout.out_in, _native.WeightLayout.in_out)


def grouped_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    rows: torch.Tensor | Sequence[int],
    bias: torch.Tensor | None = None,
    *,
    transposed: bool = False,
) -> torch.Tensor:
    """Multiply each group's rows by the group's weight.

    >>> grouped_linear(torch.ones(3, 2), torch.ones(2, 4, 2), [1, 2]).shape
    torch.Size([3, 4])

    `x` is [rows of all groups, k], `weight` [groups, n, k], or [groups, k, n] with `transposed`,
    `bias` [groups, n], and `rows` says how many rows each group has: a list, or an int64 tensor. A
    group may have none. Operands are float32, bfloat16 or float16, all alike.
    """
    counts = rows if isinstance(rows, torch.Tensor) else torch.tensor(rows, dtype=torch.int64)
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        x, weight = tensors.cast(x, dtype), tensors.cast(weight, dtype)
        bias = None if bias is None else tensors.cast(bias, dtype)
    out: torch.Tensor = _ops.grouped_linear(x, weight, counts, bias, transposed)
    return out


def multiply(
    x: torch.Tensor,
    weight: torch.Tensor,
    rows: Sequence[int],
    bias: torch.Tensor | None,
    turned: bool,
) -> torch.Tensor:
    """Multiply checked operands: the weight is [groups, n, k], or with `turned` [groups, k, n]."""
    x, stack = as_rows(x), weight.detach().contiguous()
    groups, inner, last = stack.shape
    out = x.new_empty(x.shape[0], last if turned else inner)
    added = None if bias is None else as_rows(bias.detach().contiguous())
    if groups > 0:
        _native._grouped_matmul_of_stack(
            view(x),
            view(stack.view(groups * inner, last)),
            groups,
            _LAYOUTS[turned],
            rows,
            view(out),
            None if added is None else view(added),
        )
    return out


def sum_over_rows(grad: torch.Tensor, x: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """Return gradᵀ·x of each group: [groups, columns of grad, columns of x]."""
    grad, x = as_rows(grad), as_rows(x)
    groups, n, k = len(rows), grad.shape[1], x.shape[1]
    out = x.new_empty(groups, n, k)
    if n > 0 and k > 0:
        _native._grouped_weight_gradients(view(grad), view(x), rows, view(out.view(groups * n, k)))
    return out


def _counts(
    x: torch.Tensor, weight: torch.Tensor, rows: torch.Tensor, turned: bool
) -> Sequence[int]:
    """Refuse operands that don't fit, and return the groups' rows."""
    for name, one, dimensions in (("x", x, 2), ("weight", weight, 3)):
        tensors.check(one, _NAME, name)
        float_dtype(one, _NAME, name)
        if one.dim() != dimensions:
            refuse(_NAME, f"{name} has {one.dim()} dimensions, not {dimensions}")
    if x.dtype != weight.dtype:
        refuse(_NAME, f"x is {x.dtype}, and weight {weight.dtype}")
    if x.shape[1] != weight.shape[1 if turned else 2]:
        refuse(_NAME, f"x is {list(x.shape)} and weight {list(weight.shape)}, which don't fit")
    tensors.check(rows, _NAME, "rows")
    if rows.dim() != 1 or rows.dtype != torch.int64 or rows.shape[0] != weight.shape[0]:
        refuse(
            _NAME,
            f"rows is {rows.dtype} {list(rows.shape)}, not torch.int64 [{weight.shape[0]}]",
        )
    counts: Sequence[int] = rows.tolist()
    if sum(counts) != x.shape[0] or any(count < 0 for count in counts):
        refuse(_NAME, f"the groups have {counts} rows, and x has {x.shape[0]}")
    return counts


def _run(
    x: torch.Tensor,
    weight: torch.Tensor,
    rows: torch.Tensor,
    bias: torch.Tensor | None,
    turned: bool = False,
) -> torch.Tensor:
    counts = _counts(x, weight, rows, turned)
    if bias is not None:
        tensors.check(bias, _NAME, "bias")
        outputs = [weight.shape[0], weight.shape[2 if turned else 1]]
        if list(bias.shape) != outputs:
            refuse(_NAME, f"bias is {list(bias.shape)}, not {outputs}")
    return multiply(x, weight, counts, bias, turned)


def _fake(
    x: torch.Tensor, weight: torch.Tensor, rows: torch.Tensor, bias: Any, turned: bool = False
) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[2 if turned else 1])


def _gradient(grad: torch.Tensor, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    for name, one in (("grad", grad), ("x", x), ("rows", rows)):
        tensors.check(one, "grouped_weight_gradient", name)
    return sum_over_rows(grad, x, rows.tolist())


def _gradient_fake(grad: torch.Tensor, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return x.new_empty(rows.shape[0], grad.shape[1], x.shape[1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, rows, _, turned = inputs
    ctx.turned = turned
    ctx.save_for_backward(x, weight, rows)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, weight, rows = ctx.saved_tensors
    needs_x, needs_weight, _, needs_bias = ctx.needs_input_grad[:4]
    grad_x = grad_weight = grad_bias = None
    if needs_x:
        grad_x = _ops.grouped_linear(grad, weight, rows, None, not ctx.turned)
    if needs_weight:
        pair = (x, grad) if ctx.turned else (grad, x)
        grad_weight = _ops.grouped_weight_gradient(*pair, rows)
    if needs_bias:
        ones = grad.new_ones(grad.shape[0], 1)
        grad_bias = _ops.grouped_weight_gradient(grad, ones, rows)[:, :, 0]
    return grad_x, grad_weight, None, grad_bias, None


define(
    f"{_NAME}(Tensor x, Tensor weight, Tensor rows, Tensor? bias, bool turned=False) -> Tensor",
    _run,
    _fake,
)
define(
    "grouped_weight_gradient(Tensor grad, Tensor x, Tensor rows) -> Tensor",
    _gradient,
    _gradient_fake,
)
torch.library.register_autograd(
    f"plait::{_NAME}",
    functools.partial(differentiable_once, name=_NAME)(_backward),
    setup_context=_save,
    lib=LIBRARY,
)
