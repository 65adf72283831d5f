"""The engine "c10d": the pipelined schedule, written on torch's products and process groups.

    layer = plait.torch.ColumnParallelLinear.from_linear(
        linear, options=plait.torch.Options(engine="c10d", schedule="pipelined", parts=8)
    )

It works on every device, with every backend of torch.distributed that has the three collectives:
all_reduce, reduce_scatter_single and all_gather_single. A product that communicates afterwards
is cut by columns: while one part's sums travel, the next part is multiplied. A product that
communicates first is cut by rows. Sizes need not be divisible by the number of ranks or parts.

Promised is a bound, not bits: the backend chooses the order of a sum, and rounds each partial sum
to the dtype of the result. With u the unit roundoff of that dtype, K the number of products in a
sum and W that of ranks, a result is off by at most (1 + K u32) (1 + u)^(W + 1) - 1 of the sum of
magnitudes, where torch accumulates products in f32. A bias is rounded to that dtype first.

Unproven: it is tested with gloo and with the backend "plait" on the CPU. NCCL, HCCL and XPU take
the same path, with finished parts copied on a second stream, and have not been run. On a CPU a
collective takes the cores that the product needs, so that little or nothing is gained there: the
native engine is for CPUs.
"""

import contextlib
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor

from plait import _native
from plait.errors import refuse
from plait.torch.main_grad import placeholder
from plait.torch.ranks import Ranks, Work


@dataclass
class Call:
    """How a layer is called."""

    ranks: Ranks
    parts: int
    sequence_parallel: bool
    rows: int | None  # of the first dimension, of all ranks together
    parameter: torch.Tensor | None  # whose main_grad takes the weight's gradient


def _cuts(size: int, parts: int) -> list[slice]:
    """Cut a dimension into parts of nearly the same size, none of them empty."""
    parts = max(1, min(parts, size))
    shards = [_native.balanced_shard(size, part, parts) for part in range(parts)]
    return [slice(shard.offset, shard.offset + shard.count) for shard in shards]


@functools.cache
def _side_stream(device: torch.device) -> Any:
    module = torch.get_device_module(device)
    return module.Stream() if device.type == "cpu" else module.Stream(device=device)


class _Copies:
    """Waits for parts, and copies them into the result, beside the products that follow.

    On a device with streams both happen on a second one. What is copied is kept until the first
    stream has waited for it: only then may its memory be used anew.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.module = torch.get_device_module(device)
        self.stream = _side_stream(device)
        self.kept: list[torch.Tensor] = []

    def copy(
        self, work: Work, part: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None
    ) -> None:
        with self.module.stream(self.stream):
            if work is None:  # no collective has made this stream wait for the product
                self.stream.wait_stream(self.main)
            else:
                work.wait()
            if bias is None:
                out.copy_(part)
            else:
                torch.add(part, bias, out=out)
        self.kept.append(part)

    @contextlib.contextmanager
    def __call__(self) -> Iterator["_Copies"]:
        """Let the block's copies be done, for the stream that is current here, at its end."""
        self.main = self.module.current_stream(self.device)
        self.stream.wait_stream(self.main)
        yield self
        self.main.wait_stream(self.stream)
        self.kept.clear()


def matmul_all_reduce(
    x: torch.Tensor,
    weight: torch.Tensor,
    ranks: Ranks,
    parts: int,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the sum over ranks of x [m, k_r] by weight [k_r, n]."""
    out = x.new_empty(x.shape[0], weight.shape[1])
    with _Copies(x.device)() as copies:
        under_way: list[tuple[Work, torch.Tensor, slice]] = []
        for cut in _cuts(out.shape[1], parts):
            part = torch.mm(x, weight[:, cut])
            under_way.append((ranks.all_reduce(part), part, cut))
            if len(under_way) > 1:
                _finish(copies, out, bias, *under_way.pop(0))
        for one in under_way:
            _finish(copies, out, bias, *one)
    return out


def matmul_reduce_scatter(
    x: torch.Tensor,
    weight: torch.Tensor,
    ranks: Ranks,
    parts: int,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return this rank's rows of the sum over ranks of x [m, k_r] by weight [k_r, n]."""
    own = ranks.shard(x.shape[0])
    out = x.new_empty(own.stop - own.start, weight.shape[1])
    most = ranks.most(x.shape[0])
    x = ranks.padded(x)
    with _Copies(x.device)() as copies:
        under_way: list[tuple[Work, torch.Tensor, slice]] = []
        for cut in _cuts(out.shape[1], parts):
            product = torch.mm(x, weight[:, cut])
            copies.kept.append(product)
            part = product.new_empty(most, product.shape[1])
            under_way.append((ranks.reduce_scatter(part, product), part, cut))
            if len(under_way) > 1:
                _finish(copies, out, bias, *under_way.pop(0))
        for one in under_way:
            _finish(copies, out, bias, *one)
    return out


def _finish(
    copies: _Copies,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    work: Work,
    part: torch.Tensor,
    cut: slice,
) -> None:
    own_bias = None if bias is None else bias[cut]
    copies.copy(work, part[: out.shape[0]], out[:, cut], own_bias)


def all_gather_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    ranks: Ranks,
    parts: int,
    rows: int,
    bias: torch.Tensor | None = None,
    gathered: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the rows of all ranks, `rows` in all, by weight [k, n_r]; `gathered` takes the rows.

    Part i of all ranks arrives together, and its product goes to the block of rows of each rank.
    """
    shards = [ranks.shard(rows, rank) for rank in range(ranks.world)]
    out = x.new_empty(rows, weight.shape[1])
    most = ranks.most(rows)
    x = _filled_up(x, most)
    cuts = _cuts(most, parts)
    arriving = [x.new_empty(ranks.world, cut.stop - cut.start, x.shape[1]) for cut in cuts]
    works = [ranks.all_gather(into, x[cut]) for into, cut in zip(arriving, cuts, strict=True)]
    for work, part, cut in zip(works, arriving, cuts, strict=True):
        if work is not None:
            work.wait()
        for rank, shard in enumerate(shards):
            begin, end = shard.start + cut.start, min(shard.start + cut.stop, shard.stop)
            if begin >= end:
                continue
            block = part[rank, : end - begin]
            if bias is None:
                torch.mm(block, weight, out=out[begin:end])
            else:
                torch.addmm(bias, block, weight, out=out[begin:end])
            if gathered is not None:
                gathered[begin:end] = block
    return out


def _filled_up(x: torch.Tensor, rows: int) -> torch.Tensor:
    if x.shape[0] == rows:
        return x.contiguous()
    out = x.new_zeros(rows, x.shape[1])
    out[: x.shape[0]] = x
    return out


def column_parallel_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, call: Call
) -> torch.Tensor:
    """Do what plait.torch.column_parallel_linear does."""
    if call.sequence_parallel:
        first = x.shape[0] * call.ranks.world if call.rows is None else call.rows
    else:
        first = x.shape[0] if x.dim() > 1 else 1
    x, weight, bias = _operands("column", x, weight, bias)
    inner = math.prod(x.shape[1:-1])
    rows = first * inner
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    if call.sequence_parallel:
        own = call.ranks.shard(rows)
        if flat.shape[0] != own.stop - own.start:
            _refuse(
                "column",
                f"x has {flat.shape[0]} rows, and rank {call.ranks.rank} of {call.ranks.world} "
                f"has {own.stop - own.start} of {rows}",
            )
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
    x, weight, bias = _operands("row", x, weight, bias)
    inner = math.prod(x.shape[1:-1])
    first = x.shape[0] if x.dim() > 1 else 1
    if call.sequence_parallel and inner > 1 and first % call.ranks.world != 0:
        _refuse(
            "row",
            f"the first dimension of x is {first}, which {call.ranks.world} ranks can't share "
            f"evenly; with sequence_parallel and {x.dim()} dimensions they have to",
        )
    own_bias_gradient = bias_gradient_of_own_rows and call.sequence_parallel
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out: torch.Tensor = _Row.apply(flat, weight, bias, call, own_bias_gradient)  # type: ignore[no-untyped-call]
    if call.sequence_parallel:
        first = out.shape[0] // inner if inner else 0
    return out.reshape(*((first, *x.shape[1:-1]) if x.dim() > 1 else ()), weight.shape[0])


def _operands(
    kind: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
        if isinstance(tensor, DTensor):
            _refuse(kind, f"{name} is a DTensor; plait takes plain tensors, such as its local part")
    device = x.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        _refuse(
            kind,
            f"x is {list(x.shape)} and weight {list(weight.shape)}; weight must have two "
            "dimensions, and the last dimensions must be equal",
        )
    if x.dtype != weight.dtype or x.device != weight.device:
        _refuse(kind, f"x is {x.dtype} on {x.device}, weight {weight.dtype} on {weight.device}")
    return x, weight, None if bias is None else bias.to(x.dtype)


def _refuse(kind: str, sentence: str) -> NoReturn:
    refuse(f"{kind}_parallel_linear", sentence)


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
    main_grad: torch.Tensor = call.parameter.main_grad  # type: ignore[attr-defined]
    if main_grad.dtype == x.dtype:
        main_grad.addmm_(grad_out.t(), x)
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
            return all_gather_matmul(x, weight.t(), call.ranks, call.parts, rows, bias)
        return torch.nn.functional.linear(x, weight, bias)

    setup_context = staticmethod(_save)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: torch.Tensor) -> _Gradients:
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        x, weight = ctx.saved_tensors
        call: Call = ctx.call
        ranks, rows = call.ranks, ctx.last
        gathering: Work = None
        if needs_weight and call.sequence_parallel:  # beside the product of grad_x
            own = _filled_up(x, ranks.most(rows))
            x = own.new_empty(ranks.world, *own.shape)
            gathering = ranks.all_gather(x, own)
        grad_x, summing = None, None
        if needs_x:  # its sum goes on beside the product of the weight's gradient
            if call.sequence_parallel:
                # Both are kept until the sum is there.
                product = torch.mm(ranks.padded(grad_out), weight)
                grad_x = product.new_empty(ranks.most(rows), product.shape[1])
                summing = ranks.reduce_scatter(grad_x, product)
            else:
                grad_x = torch.mm(grad_out, weight)
                summing = ranks.all_reduce(grad_x)
        grad_weight = None
        if needs_weight:
            if gathering is not None:
                gathering.wait()
            all_x = ranks.unpadded(x, rows) if call.sequence_parallel else x
            grad_weight = _weight_gradient(call, grad_out, all_x)
        grad_bias = grad_out.sum(0) if needs_bias else None
        if summing is not None:
            summing.wait()
        if grad_x is not None and call.sequence_parallel:
            own_rows = ranks.shard(rows)
            grad_x = grad_x[: own_rows.stop - own_rows.start]
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
        multiply = matmul_reduce_scatter if call.sequence_parallel else matmul_all_reduce
        return multiply(x, weight.t(), call.ranks, call.parts, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        _save(ctx, inputs, output)
        ctx.rows = inputs[0].shape[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: torch.Tensor) -> _Gradients:
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        x, weight = ctx.saved_tensors
        call: Call = ctx.call
        own_grad = grad_out
        grad_x = None
        if call.sequence_parallel:
            grad_out = own_grad.new_empty(ctx.rows, own_grad.shape[1])
            grad_x = all_gather_matmul(
                own_grad, weight, call.ranks, call.parts, ctx.rows, gathered=grad_out
            )
        elif needs_x:
            grad_x = torch.mm(grad_out, weight)
        grad_weight = _weight_gradient(call, grad_out, x) if needs_weight else None
        grad_bias = None
        if needs_bias:
            grad_bias = (own_grad if ctx.last else grad_out).sum(0)
        return grad_x if needs_x else None, grad_weight, grad_bias, None, None
