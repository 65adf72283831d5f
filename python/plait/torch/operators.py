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

A weight may be a plait.torch.QuantizedWeight, which has no gradient and lets none through.
all_gather_matmul(..., gathered=True) returns a pair: the result, and the gathered x [m, k].

Gradients are those of tensor parallelism: what every rank has alike (a result of [m, n]) is used by
every rank alike, so that its gradient is not summed over ranks. Where rows are shared, a weight
that every rank has alike gets this rank's part of its gradient; add the ranks' parts up, as
trainers do.
"""

import math
from typing import Any, Literal, NoReturn, Protocol, cast, overload

import torch
import torch.distributed as dist
from torch.compiler import is_compiling

from plait._native import Code
from plait.errors import Error
from plait.torch import tensors
from plait.torch.context import context_of, group_place, known_context
from plait.torch.gradients import DIFFERENTIATED
from plait.torch.how import C10D, How, group_called
from plait.torch.library import GATHERED, OPERATORS
from plait.torch.options import Options, check_options
from plait.torch.quantized import QuantizedWeight
from plait.torch.rows import check_same_device, count_of_rows, float_dtype, shard_of_rows

_ops = torch.ops.plait
# Looking for these in torch takes as long as calling them.
_is_profiled = torch._C._autograd._profiler_enabled
_is_autocast_enabled = torch.is_autocast_enabled
_DEFAULTS = Options()
Group = dist.ProcessGroup | str | None
Weight = torch.Tensor | QuantizedWeight


class Operator(Protocol):
    """An operator. `weight` is [n, k] or quantised; `group` a process group or its name."""

    def __call__(
        self,
        x: torch.Tensor,
        weight: Weight,
        bias: torch.Tensor | None = None,
        *,
        group: Group = None,
        options: Options = _DEFAULTS,
    ) -> torch.Tensor:
        """Call it on all ranks of the group."""
        ...


class GatheringOperator(Protocol):
    """An operator that gathers rows.

    `rows`: the size of the first dimension over all ranks, needed if they share it unevenly.
    """

    def __call__(
        self,
        x: torch.Tensor,
        weight: Weight,
        bias: torch.Tensor | None = None,
        *,
        group: Group = None,
        rows: int | None = None,
        options: Options = _DEFAULTS,
    ) -> torch.Tensor:
        """Call it on all ranks of the group."""
        ...


class PairingOperator(Protocol):
    """An operator that gathers rows, and also returns them where `gathered` is set.

    The gradient of what was gathered is that of a value which all ranks have and use alike: it is
    not summed over ranks. Multiply it by a weight that ranks share with column_parallel_linear(),
    whose gradient of x is summed.
    """

    @overload
    def __call__(
        self,
        x: torch.Tensor,
        weight: Weight,
        bias: torch.Tensor | None = None,
        *,
        group: Group = None,
        rows: int | None = None,
        gathered: Literal[False] = False,
        options: Options = _DEFAULTS,
    ) -> torch.Tensor: ...
    @overload
    def __call__(
        self,
        x: torch.Tensor,
        weight: Weight,
        bias: torch.Tensor | None = None,
        *,
        group: Group = None,
        rows: int | None = None,
        gathered: Literal[True],
        options: Options = _DEFAULTS,
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


def _check_operands(name: str, x: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> None:
    """Refuse wrong operands in one sentence; torch's dispatcher would print a page.

    Tracing calls it with other types.
    """
    operands = {"x": x, "bias": bias}
    if isinstance(weight, torch.Tensor):
        operands["weight"] = weight
    elif isinstance(weight, QuantizedWeight):
        parts = {"values": weight.values, "scales": weight.scales, "offsets": weight.offsets}
        operands.update({f"weight.{part}": tensor for part, tensor in parts.items()})
    else:
        _refuse(
            name, f"weight is of type {type(weight).__name__}, not a tensor or a QuantizedWeight"
        )
    for what, tensor in operands.items():
        if tensor is not None or what == "x":
            _check_tensor(name, what, tensor)
    if tensors.is_on_gpu(*operands.values()):
        if not isinstance(weight, torch.Tensor):
            _refuse(name, "weight is quantised; on GPUs weights are plain")
        check_same_device(name, **operands)
    tensors.refuse_tangents(name, operands)
    if isinstance(weight, torch.Tensor):
        if weight.dim() != 2:
            _refuse(name, f"weight has {weight.dim()} dimensions, not 2")
    elif torch.is_grad_enabled() and x.requires_grad:
        _refuse(
            name,
            "x requires a gradient, and products by quantised weights have none; "
            "call it under torch.no_grad()",
        )


def _check_sizes(
    name: str, x: torch.Tensor, group: Group, options: Options, rows: int | None
) -> None:
    if options.settings is not None:
        _refuse(name, "options.settings are for layers; operators take schedule, parts and wire")
    if x.dim() == 2:
        return
    if x.dim() == 0:
        _refuse(name, "x has no dimensions; the last one is multiplied")
    if x.dim() == 1 and name not in ("matmul_all_reduce", "all_reduce_matmul"):
        _refuse(name, "x has one dimension, and ranks share the first of at least two")
    found = group_called(group, name) if isinstance(group, str) else group
    rank, world = group_place(found, name)
    shared = x.shape[0] if name in _SCATTERED else rows
    if x.dim() > 2 and shared is not None:
        shard_of_rows(shared, math.prod(x.shape[1:-1]), rank, world, name)


def _check_tensor(operator: str, name: str, tensor: torch.Tensor | None) -> None:
    if not isinstance(tensor, torch.Tensor):
        _refuse(operator, f"{name} is of type {type(tensor).__name__}, not a tensor")
    strided = tensor.layout is torch.strided and not tensor.is_nested
    if tensor.is_quantized:  # by torch
        float_dtype(tensor, operator, name)  # refuses it
    if not strided or tensor.device.type != "cpu" or tensors.is_dtensor(tensor):
        tensors.check(tensor, operator, name, on_gpu=True)


def _refuse(name: str, sentence: str) -> NoReturn:
    raise Error(Code.invalid_argument, f"{name}: {sentence}", operator=name)


def _at_once(
    name: str,
    x: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None,
    group: Group,
    options: Options,
    rows: int | None,
) -> Any:
    """Make a call that takes no more than the native operator; None: this one does."""
    if tensors.MODES.are_on() or _is_profiled():
        return None
    context = known_context(group, options)
    operator = None if context is None else context.operators.get(name)
    if operator is None:
        return None
    rows_of_all = -1 if rows is None else count_of_rows(rows, name)
    out = operator.call(x, weight, bias, False, rows_of_all)
    if out is NotImplemented:
        return DIFFERENTIATED[name](x, weight, bias, context, False, rows_of_all)
    return out


_SCATTERED = ("matmul_reduce_scatter", "reduce_scatter_matmul")


def _call(
    name: str,
    x: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None,
    group: Group,
    options: Options,
    rows: int | None = None,
    gathered: bool = False,
) -> Any:
    """Call an operator with all but the last dimension of x as rows."""
    if not gathered and not is_compiling():
        out = _at_once(name, x, weight, bias, group, options, rows)
        if out is not None:
            return out
    check_options(options, name)
    is_for_kernel = False
    if not is_compiling():
        is_for_kernel = options.engine == "native" and tensors.are_for_kernels(x, weight, bias)
        if not is_for_kernel:
            _check_operands(name, x, weight, bias)
        rows = None if rows is None else count_of_rows(rows, name)
        if x.dim() != 2 or options.settings is not None:
            _check_sizes(name, x, group, options, rows)
    device = "cuda" if x.is_cuda else "cpu"
    if _is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x = tensors.cast(x, dtype)
        weight = tensors.cast(weight, dtype) if isinstance(weight, torch.Tensor) else weight
        bias = None if bias is None else tensors.cast(bias, dtype)
    is_matrix = x.dim() == 2
    per_row = 1 if is_matrix else math.prod(x.shape[1:-1])
    rows_of_all = -1 if rows is None else count_of_rows(rows * per_row, name)
    matrix = x if is_matrix else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    if is_for_kernel and not _is_profiled():
        call = _call_kernel
    else:
        call = _call_dispatcher
    found = call(name, matrix, weight, bias, group, options, rows_of_all, gathered)
    if is_matrix:
        return found
    if x.dim() < 2:
        return found.reshape(-1)
    outs = found if gathered else (found,)
    if per_row == 0:
        known = How(_name(group), rows=-1 if rows is None else rows)
        first = OPERATORS[name].rows_of(x, known)
    else:
        first = outs[0].shape[0] // per_row
    shaped = tuple(out.reshape(first, *x.shape[1:-1], out.shape[1]) for out in outs)
    return shaped if gathered else shaped[0]


def _call_kernel(
    name: str,
    x: torch.Tensor,
    weight: Any,
    bias: torch.Tensor | None,
    group: Group,
    options: Options,
    rows_of_all: int,
    gathered: bool,
) -> Any:
    """Do what torch's dispatcher would do with these operands, in a fraction of its time."""
    context = context_of(
        group_called(group, name) if isinstance(group, str) else group, options, name
    )
    called = GATHERED if gathered else name
    if tensors.require_gradients(x, weight, bias):
        return DIFFERENTIATED[called](x, weight, bias, context, False, rows_of_all)
    return OPERATORS[called].run_native(x, weight, bias, context, False, rows_of_all)


def _call_dispatcher(
    name: str,
    x: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None,
    group: Group,
    options: Options,
    rows_of_all: int,
    gathered: bool,
) -> Any:
    called = GATHERED if gathered else name
    rows = (rows_of_all,) if OPERATORS[name].gathers else ()
    how: tuple[str, str, int, str]
    how = _name(group), options.schedule or "", options.parts or 0, options.wire or ""
    if options.engine == "c10d":
        how = _name(group), C10D, 1 if options.schedule == "serial" else options.parts or 0, ""
    if isinstance(weight, QuantizedWeight):
        parts = (weight.values, weight.scales, weight.offsets, weight.scheme)
        how_fixed = *how, options.fixed_weights
        return getattr(_ops, f"{called}_quantized")(x, *parts, bias, *how_fixed, *rows)
    return getattr(_ops, called)(x, weight, bias, *how, False, *rows)


def _name(group: Group) -> str:
    if group is None or isinstance(group, str):
        return group or ""
    return str(group.group_name)


def _operator(name: str, does: str) -> Operator:
    def call(
        x: torch.Tensor,
        weight: Weight,
        bias: torch.Tensor | None = None,
        *,
        group: Group = None,
        options: Options = _DEFAULTS,
    ) -> torch.Tensor:
        found: torch.Tensor = _call(name, x, weight, bias, group, options)
        return found

    _document(call, name, does)
    return call


def _gathering_operator(name: str, does: str) -> GatheringOperator:
    def call(
        x: torch.Tensor,
        weight: Weight,
        bias: torch.Tensor | None = None,
        *,
        group: Group = None,
        rows: int | None = None,
        options: Options = _DEFAULTS,
    ) -> torch.Tensor:
        found: torch.Tensor = _call(name, x, weight, bias, group, options, rows)
        return found

    _document(call, name, f"{does}\n\n    {_OF_ALL}")
    return call


_OF_ALL = "rows: the size of the first dimension over all ranks, needed if they share it unevenly."


def _pairing_operator(name: str, does: str) -> PairingOperator:
    def call(
        x: torch.Tensor,
        weight: Weight,
        bias: torch.Tensor | None = None,
        *,
        group: Group = None,
        rows: int | None = None,
        gathered: bool = False,
        options: Options = _DEFAULTS,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        found: torch.Tensor | tuple[torch.Tensor, torch.Tensor]
        found = _call(name, x, weight, bias, group, options, rows, gathered)
        return found

    more = "gathered: also return the rows of all ranks, whose gradient is not summed over ranks."
    _document(call, name, f"{does}\n\n    {_OF_ALL}\n    {more}")
    return cast(PairingOperator, call)


def _document(call: Any, name: str, does: str) -> None:
    """Give an operator its name, and an example that doctest runs."""
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""{does}

    >>> {name}(torch.ones(2, 3), torch.ones(4, 3)).shape
    torch.Size([2, 4])
    """


matmul_all_reduce = _operator(
    "matmul_all_reduce", "Multiply by this rank's part of the weight, and add up over the group."
)
matmul_reduce_scatter = _operator(
    "matmul_reduce_scatter",
    "Multiply by this rank's part of the weight, and keep this rank's rows of the sum.",
)
matmul_all_gather = _gathering_operator(
    "matmul_all_gather", "Multiply this rank's rows, and gather the results of all ranks."
)
all_gather_matmul = _pairing_operator(
    "all_gather_matmul",
    "Gather the rows of all ranks, and multiply them by this rank's part of the weight.",
)
reduce_scatter_matmul = _operator(
    "reduce_scatter_matmul", "Add x up over the group, and multiply this rank's rows of the sum."
)
all_reduce_matmul = _operator("all_reduce_matmul", "Add x up over the group, and multiply the sum.")
