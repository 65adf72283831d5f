"""The operators as torch operators: they differentiate, compile and export.

Each takes `x` of [..., k] and a weight of [n, k], as torch.nn.Linear has it, and returns a new
tensor. Rows are all dimensions but the last. All ranks of the group make the call.

    operator                x           weight      result
    matmul_all_reduce       [m, k_r]    [n, k_r]    [m, n]: the sum over ranks
    matmul_reduce_scatter   [m, k_r]    [n, k_r]    this rank's rows of the sum
    matmul_all_gather       own rows    [n, k]      [m, n]: all ranks' rows
    all_gather_matmul       own rows    [n_r, k]    [m, n_r]
    reduce_scatter_matmul   [m, k]      [n, k]      this rank's rows of (sum of x)·weight
    all_reduce_matmul       [m, k]      [n, k]      [m, n]: (sum of x)·weight

Gradients are those of tensor parallelism: what every rank has alike (a result of [m, n]) is used by
every rank alike, so that its gradient is not summed over ranks. Where rows are shared, a weight
that every rank has alike gets this rank's part of its gradient; add the ranks' parts up, as
trainers do.
"""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable
from torch.distributed import distributed_c10d
from torch.distributed.tensor import DTensor

from plait import _native
from plait._native import Code
from plait.errors import Error
from plait.torch import tensors, weights
from plait.torch.context import context_of, group_place
from plait.torch.options import Options
from plait.torch.rows import as_rows, bias_row, check_matrix, float_dtype, shard_of_rows, view

_resolve: Any = vars(distributed_c10d)["_resolve_process_group"]
_LIBRARY = torch.library.Library("plait", "DEF")
_HOW = 'str group, str schedule="", int parts=0, str wire=""'
_OPERANDS = "Tensor x, Tensor weight, Tensor? bias"


def _group(name: str) -> dist.ProcessGroup | None:
    if not name:
        return None
    try:
        group: dist.ProcessGroup = _resolve(name)
    except RuntimeError:
        raise Error(
            Code.invalid_argument,
            f"there is no process group {name!r}; it was destroyed, or this rank is no member",
        ) from None
    return group


def _size(name: str) -> tuple[int, int]:
    """Return rank and size of a group, while tracing too."""
    return group_place(_group(name))


def _own_rows(m: int, group: str) -> int:
    # The first (m mod size) ranks own one row more.
    rank, size = _size(group)
    return (m + size - 1 - rank) // size


_OPERATORS: dict[str, "_Operator"] = {}


class _Operator:
    """One operator: its sizes, its native function, and its registration."""

    def __init__(self, name: str, extra: str, rows: Callable[[int, str, int], int]) -> None:
        self.name = name
        _OPERATORS[name] = self
        self.rows = rows  # of the result, of: rows of x, the group's name, `rows`
        schema = f"{name}({_OPERANDS}, {_HOW}, bool turned=False{extra}) -> Tensor"
        _LIBRARY.define(schema)
        _LIBRARY.impl(name, self.run, "CPU")
        torch.library.register_fake(f"plait::{name}", self.fake, lib=_LIBRARY)

    def fake(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        group: str,
        schedule: str = "",
        parts: int = 0,
        wire: str = "",
        turned: bool = False,
        rows: int = -1,
    ) -> torch.Tensor:
        return x.new_empty(self.rows(x.shape[0], group, rows), weight.shape[1 if turned else 0])

    def run(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        group: str,
        schedule: str = "",
        parts: int = 0,
        wire: str = "",
        turned: bool = False,
        rows: int = -1,
        gathered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = _rows(self.name, "x", x)
        weight = _rows(self.name, "weight", weight)
        added = bias_row(bias, weight.shape[1 if turned else 0], self.name)
        options = Options(
            schedule=schedule or None,  # type: ignore[arg-type]
            parts=parts or None,
            wire=wire or None,
        )
        context = context_of(_group(group), options)
        out = self.fake(x, weight, bias, group, turned=turned, rows=rows)
        getattr(_native, self.name)(
            view(x),
            weights.plain(weight, turned=turned),
            view(out),
            context.comm,
            bias=None if added is None else view(added),
            gathered=None if gathered is None else view(gathered),
            wire=context.settings.wire,
            plans=context.plans,
            threads=context.settings.threads,
            backend=context.settings.backend,
        )
        return out


def _rows(operator: str, name: str, x: torch.Tensor) -> torch.Tensor:
    """Check a matrix, and return it as rows that a product can read."""
    check_matrix(x, operator, name)
    return as_rows(x)


def _all_rows(own: int, group: str, rows: int) -> int:
    return own * _size(group)[1] if rows < 0 else rows


_ROWS_ARGUMENT = ", int rows=-1"
_matmul = _Operator("matmul", "", lambda m, group, rows: m)
_matmul_all_reduce = _Operator("matmul_all_reduce", "", lambda m, group, rows: m)
_matmul_reduce_scatter = _Operator(
    "matmul_reduce_scatter", "", lambda m, group, rows: _own_rows(m, group)
)
_matmul_all_gather = _Operator("matmul_all_gather", _ROWS_ARGUMENT, _all_rows)
_all_gather_matmul = _Operator("all_gather_matmul", _ROWS_ARGUMENT, _all_rows)
_reduce_scatter_matmul = _Operator(
    "reduce_scatter_matmul", "", lambda m, group, rows: _own_rows(m, group)
)
_all_reduce_matmul = _Operator("all_reduce_matmul", "", lambda m, group, rows: m)

# all_gather_matmul that also returns the gathered x.
_LIBRARY.define(
    f"all_gather_matmul_gathered({_OPERANDS}, {_HOW}, bool turned=False{_ROWS_ARGUMENT})"
    " -> (Tensor, Tensor)"
)


def _gathered_fake(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    group: str,
    schedule: str = "",
    parts: int = 0,
    wire: str = "",
    turned: bool = False,
    rows: int = -1,
) -> tuple[torch.Tensor, torch.Tensor]:
    out = _all_gather_matmul.fake(x, weight, bias, group, turned=turned, rows=rows)
    return out, x.new_empty(out.shape[0], x.shape[1])


def _gathered_run(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    group: str,
    schedule: str = "",
    parts: int = 0,
    wire: str = "",
    turned: bool = False,
    rows: int = -1,
) -> tuple[torch.Tensor, torch.Tensor]:
    gathered = x.new_empty(_all_rows(x.shape[0], group, rows), x.shape[1])
    how = (group, schedule, parts, wire, turned, rows)
    return _all_gather_matmul.run(x, weight, bias, *how, gathered), gathered


_LIBRARY.impl("all_gather_matmul_gathered", _gathered_run, "CPU")
torch.library.register_fake("plait::all_gather_matmul_gathered", _gathered_fake, lib=_LIBRARY)

# The weight's gradient: grad_outᵀ·x, of this rank alone.
_LIBRARY.define("weight_gradient(Tensor grad_out, Tensor x) -> Tensor")
_gemms = threading.local()  # a Gemm serves one thread


def _weight_gradient_run(grad_out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    grad_out = _rows("weight_gradient", "grad_out", grad_out)
    x = _rows("weight_gradient", "x", x)
    out = x.new_empty(grad_out.shape[1], x.shape[1])
    kinds = tuple(float_dtype(one, "weight_gradient", "x") for one in (grad_out, x, out))
    known: dict[tuple[Any, ...], _native.Gemm] = _gemms.__dict__.setdefault("known", {})
    key = (*out.shape, x.shape[0], *kinds)
    if key not in known:
        if len(known) == 64:
            known.pop(next(iter(known)))
        known[key] = _native.Gemm(
            out.shape[0], out.shape[1], x.shape[0], x=kinds[0], weight=kinds[1], out=kinds[2]
        )
    by = _native.WeightView(view(x), _native.WeightLayout.in_out)
    known[key].run(view(grad_out), by, view(out), transposed=True)
    return out


def _weight_gradient_fake(grad_out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(grad_out.shape[1], x.shape[1])


_LIBRARY.impl("weight_gradient", _weight_gradient_run, "CPU")
torch.library.register_fake("plait::weight_gradient", _weight_gradient_fake, lib=_LIBRARY)

# Collectives of rows, which backwards need.
_LIBRARY.define("all_gather_rows(Tensor x, str group, int rows) -> Tensor")
_LIBRARY.define("reduce_scatter_rows(Tensor x, str group) -> Tensor")
_LIBRARY.define("all_reduce_rows(Tensor x, str group) -> Tensor")


def _counts(rows: int, columns: int, world: int) -> list[int]:
    """Count the elements of each rank's rows."""
    return [_native.balanced_shard(rows, rank, world).count * columns for rank in range(world)]


def _all_gather_rows(x: torch.Tensor, group: str, rows: int) -> torch.Tensor:
    x = x.contiguous()
    out = x.new_empty(rows, x.shape[1])
    comm = context_of(_group(group), Options()).comm
    dtype = float_dtype(x, "all_gather", "x")
    counts = _counts(rows, x.shape[1], comm.world)
    _native._all_gather_at(
        x.data_ptr(), x.numel(), out.data_ptr(), out.numel(), dtype, comm, counts
    )
    return out


def _reduce_scatter_rows(x: torch.Tensor, group: str) -> torch.Tensor:
    x = x.contiguous()
    out = x.new_empty(_own_rows(x.shape[0], group), x.shape[1])
    comm = context_of(_group(group), Options()).comm
    dtype = float_dtype(x, "reduce_scatter", "x")
    counts = _counts(x.shape[0], x.shape[1], comm.world)
    _native._reduce_scatter_at(
        x.data_ptr(), x.numel(), out.data_ptr(), out.numel(), dtype, comm, counts
    )
    return out


def _all_reduce_rows(x: torch.Tensor, group: str) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    comm = context_of(_group(group), Options()).comm
    dtype = float_dtype(x, "all_reduce", "x")
    _native._all_reduce_at(x.data_ptr(), out.data_ptr(), x.numel(), dtype, comm)
    return out


_LIBRARY.impl("all_gather_rows", _all_gather_rows, "CPU")
_LIBRARY.impl("reduce_scatter_rows", _reduce_scatter_rows, "CPU")
_LIBRARY.impl("all_reduce_rows", _all_reduce_rows, "CPU")


def _all_gather_rows_fake(x: torch.Tensor, group: str, rows: int) -> torch.Tensor:
    return x.new_empty(rows, x.shape[1])


def _reduce_scatter_rows_fake(x: torch.Tensor, group: str) -> torch.Tensor:
    return x.new_empty(_own_rows(x.shape[0], group), x.shape[1])


def _all_reduce_rows_fake(x: torch.Tensor, group: str) -> torch.Tensor:
    return x.new_empty(x.shape)


for _named, _fake in (
    ("all_gather_rows", _all_gather_rows_fake),
    ("reduce_scatter_rows", _reduce_scatter_rows_fake),
    ("all_reduce_rows", _all_reduce_rows_fake),
):
    torch.library.register_fake(f"plait::{_named}", _fake, lib=_LIBRARY)

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


def _differentiate(name: str, rule: _Backward, arguments: int) -> None:
    def backward(ctx: Any, grad: torch.Tensor) -> _Gradients:
        x, weight = ctx.saved_tensors
        grad_x, grad_rows, x_rows = rule(ctx, grad, x, weight)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_weight = None
        if needs_weight:
            left, right = (x_rows(), grad_rows) if ctx.turned else (grad_rows, x_rows())
            grad_weight = _ops.weight_gradient(left, right)
        grad_bias = grad_rows.sum(0) if needs_bias else None
        return (grad_x if needs_x else None, grad_weight, grad_bias, *(None,) * arguments)

    torch.library.register_autograd(
        f"plait::{name}", once_differentiable(backward), setup_context=_save, lib=_LIBRARY
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


def _gathered_after(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    rank, size = _size(ctx.how[0])
    m, own = ctx.rows[1], ctx.rows[0]
    begin = rank * (m // size) + min(rank, m % size)
    return _local(ctx, grad[begin : begin + own], x, weight)


def _summed(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    grad_x, grad_rows, _ = _local(ctx, grad, x, weight)
    return grad_x, grad_rows, lambda: _ops.all_reduce_rows(x, ctx.how[0])


def _summed_own(ctx: Any, grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    grad_x = _ops.all_gather_matmul(grad, weight, None, *ctx.how, not ctx.turned, ctx.rows[0])
    return grad_x, grad, lambda: _ops.reduce_scatter_rows(x, ctx.how[0])


_differentiate("matmul", _local, 5)
_differentiate("matmul_all_reduce", _local, 5)
_differentiate("matmul_reduce_scatter", _scattered, 5)
_differentiate("matmul_all_gather", _gathered_after, 6)
_differentiate("all_gather_matmul", _gathered, 6)
_differentiate("reduce_scatter_matmul", _summed_own, 5)
_differentiate("all_reduce_matmul", _summed, 5)


Group = dist.ProcessGroup | str | None


def _check_call(
    name: str,
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None],
    group: Group,
    options: Options,
    rows: int | None,
) -> None:
    """Say in a sentence what torch's dispatcher would say on a page. Tracing uses other types."""
    for what, tensor in zip(("x", "weight", "bias"), operands, strict=True):
        if tensor is not None:
            strided = tensor.layout is torch.strided
            if not strided or tensor.device.type != "cpu" or isinstance(tensor, DTensor):
                tensors.check(tensor, name, what)
    if options.settings is not None:
        _refuse(name, "options.settings are for layers; operators take schedule, parts and wire")
    x, weight, _ = operands
    if weight.dim() != 2:
        _refuse(name, f"weight has {weight.dim()} dimensions, not 2")
    if x.dim() == 0:
        _refuse(name, "x has no dimensions; the last one is multiplied")
    if x.dim() == 1 and name not in ("matmul_all_reduce", "all_reduce_matmul"):
        _refuse(name, "x has one dimension, and ranks share the first of at least two")
    shared = x.shape[0] if name in _SCATTERED else rows
    rank, world = group_place(_group(group) if isinstance(group, str) else group)
    if x.dim() > 2 and shared is not None:
        shard_of_rows(shared, math.prod(x.shape[1:-1]), rank, world, name)


def _refuse(name: str, sentence: str) -> NoReturn:
    raise Error(Code.invalid_argument, f"{name}: {sentence}", operator=name)


_SCATTERED = ("matmul_reduce_scatter", "reduce_scatter_matmul")


def _call(
    name: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    group: Group,
    options: Options,
    *rows: int | None,
) -> torch.Tensor:
    """Call an operator with all but the last dimension of x as rows."""
    if options.engine != "native" or options.product != "plait":
        raise Error(
            Code.invalid_argument,
            f"{name}: engine={options.engine!r} with product={options.product!r} is for "
            "layers, not for single operators",
            operator=name,
        )
    if not torch.compiler.is_compiling():
        _check_call(name, (x, weight, bias), group, options, *(rows or (None,)))
    operator = getattr(_ops, name)
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    how = (
        _name(group),
        options.schedule or "",
        options.parts or 0,
        options.wire or "",
        False,
    )
    inner = x.shape[1:-1]
    per_row = math.prod(inner)
    extra = tuple(-1 if one is None else one * per_row for one in rows)
    if x.dim() == 2:
        out: torch.Tensor = operator(x, weight, bias, *how, *extra)
        return out
    out = operator(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), weight, bias, *how, *extra)
    if x.dim() < 2:
        return out.reshape(-1)
    if per_row == 0:
        known = rows[0] if rows and rows[0] is not None else -1
        first = _OPERATORS[name].rows(x.shape[0], _name(group), known)
    else:
        first = out.shape[0] // per_row
    return out.reshape(first, *inner, weight.shape[0])


_DEFAULTS = Options()


def matmul_all_reduce(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    group: Group = None,
    options: Options = _DEFAULTS,
) -> torch.Tensor:
    """Multiply by this rank's part of the weight, and add up over the group.

    >>> matmul_all_reduce(torch.ones(2, 3), torch.ones(4, 3)).shape
    torch.Size([2, 4])
    """
    return _call("matmul_all_reduce", x, weight, bias, group, options)


def matmul_reduce_scatter(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    group: Group = None,
    options: Options = _DEFAULTS,
) -> torch.Tensor:
    """Multiply by this rank's part of the weight, and keep this rank's rows of the sum.

    >>> matmul_reduce_scatter(torch.ones(2, 3), torch.ones(4, 3)).shape
    torch.Size([2, 4])
    """
    return _call("matmul_reduce_scatter", x, weight, bias, group, options)


def matmul_all_gather(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    group: Group = None,
    rows: int | None = None,
    options: Options = _DEFAULTS,
) -> torch.Tensor:
    """Multiply this rank's rows, and gather the results of all ranks.

    >>> matmul_all_gather(torch.ones(2, 3), torch.ones(4, 3)).shape
    torch.Size([2, 4])

    `rows`: of the first dimension, of all ranks together, where they don't have equally many.
    """
    return _call("matmul_all_gather", x, weight, bias, group, options, rows)


def all_gather_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    group: Group = None,
    rows: int | None = None,
    options: Options = _DEFAULTS,
) -> torch.Tensor:
    """Gather the rows of all ranks, and multiply them by this rank's part of the weight.

    >>> all_gather_matmul(torch.ones(2, 3), torch.ones(4, 3)).shape
    torch.Size([2, 4])

    `rows`: of the first dimension, of all ranks together, where they don't have equally many.
    """
    return _call("all_gather_matmul", x, weight, bias, group, options, rows)


def reduce_scatter_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    group: Group = None,
    options: Options = _DEFAULTS,
) -> torch.Tensor:
    """Add x up over the group, and multiply this rank's rows of the sum.

    >>> reduce_scatter_matmul(torch.ones(2, 3), torch.ones(4, 3)).shape
    torch.Size([2, 4])
    """
    return _call("reduce_scatter_matmul", x, weight, bias, group, options)


def all_reduce_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    group: Group = None,
    options: Options = _DEFAULTS,
) -> torch.Tensor:
    """Add x up over the group, and multiply the sum.

    >>> all_reduce_matmul(torch.ones(2, 3), torch.ones(4, 3)).shape
    torch.Size([2, 4])
    """
    return _call("all_reduce_matmul", x, weight, bias, group, options)


def _name(group: Group) -> str:
    if group is None or isinstance(group, str):
        return group or ""
    return str(group.group_name)
