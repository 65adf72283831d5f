"""The two tensor-parallel linear layers as functions of tensors, with their gradients."""

import functools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist

from plait import _native
from plait.errors import refuse
from plait.torch import device_layers, direct, tensors, weights
from plait.torch.by_products import products_of_layer
from plait.torch.context import Context, Direct, Layer, context_of
from plait.torch.flops import count_layer
from plait.torch.graphs import outside_of_graphs
from plait.torch.main_grad import main_grad_of, placeholder
from plait.torch.once import differentiable_once
from plait.torch.options import Options
from plait.torch.report import count_other
from plait.torch.rows import as_rows, bias_row, check_matrix, count_of_rows, shard_of_rows, view

Kind = Literal["column", "row"]
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
    rows = None if rows is None else count_of_rows(rows, "column_parallel_linear")
    x, weight = tensors.resolved(x), tensors.resolved(weight)
    products = products_of_layer("column_parallel_linear", x, weight, bias, group, options)
    if products is None:
        _check(x, weight, "column_parallel_linear", sequence_parallel)
    if rows is not None and not sequence_parallel and x.dim() > 1 and rows != x.shape[0]:
        sentence = f"rows is {rows}, but x has {x.shape[0]}, all of them without sequence_parallel"
        refuse("column_parallel_linear", sentence)
    if products is not None:
        count_other("column_parallel_linear", products.name)
        main_grad = weight if accumulate_into_main_grad else None
        by_products = device_layers.Call(
            "column_parallel_linear", products, sequence_parallel, rows, main_grad
        )
        return device_layers.column_parallel_linear(x, weight, bias, by_products)
    context = context_of(group, options, "column_parallel_linear")
    comm, inner = context.comm, math.prod(x.shape[1:-1])
    first = x.shape[0] if x.dim() > 1 else 1
    if sequence_parallel:
        first = first * comm.world if rows is None else rows
        shard_of_rows(first, inner, comm.rank, comm.world, "column_parallel_linear")
    call = _Call(
        kind="column",
        context=context,
        sequence_parallel=sequence_parallel,
        rows=first * inner,
        own_bias_gradient=False,
        main_grad=weight if accumulate_into_main_grad else None,
        owner=weights.owner_of(weight) if layer is None else layer,
    )
    out = _apply(x, weight, bias, call)
    shape = (first, *x.shape[1:-1]) if x.dim() > 1 else ()
    return out.reshape(*shape, weight.shape[0])


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
    x, weight = tensors.resolved(x), tensors.resolved(weight)
    products = products_of_layer("row_parallel_linear", x, weight, bias, group, options)
    if products is None:
        _check(x, weight, "row_parallel_linear", sequence_parallel)
    if products is not None:
        count_other("row_parallel_linear", products.name)
        main_grad = weight if accumulate_into_main_grad else None
        by_products = device_layers.Call(
            "row_parallel_linear", products, sequence_parallel, None, main_grad
        )
        return device_layers.row_parallel_linear(
            x, weight, bias, by_products, bias_gradient_of_own_rows
        )
    context = context_of(group, options, "row_parallel_linear")
    comm, inner = context.comm, math.prod(x.shape[1:-1])
    first = own = x.shape[0] if x.dim() > 1 else 1
    if sequence_parallel:
        own = shard_of_rows(first, inner, comm.rank, comm.world, "row_parallel_linear")
    call = _Call(
        kind="row",
        context=context,
        sequence_parallel=sequence_parallel,
        rows=first * inner,
        own_bias_gradient=bias_gradient_of_own_rows and sequence_parallel,
        main_grad=weight if accumulate_into_main_grad else None,
        owner=weights.owner_of(weight) if layer is None else layer,
    )
    out = _apply(x, weight, bias, call)
    shape = (own, *x.shape[1:-1]) if x.dim() > 1 else ()
    return out.reshape(*shape, weight.shape[0])


def _check(x: torch.Tensor, weight: torch.Tensor, name: str, sequence_parallel: bool) -> None:
    tensors.check(x, name, "x")
    check_matrix(weight, name, "weight")
    if x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        refuse(
            name,
            f"x is {list(x.shape)} and weight {list(weight.shape)}; "
            "the last dimensions must be equal",
        )
    if sequence_parallel and x.dim() == 1:
        refuse(name, "x has one dimension, and sequence_parallel needs another one to share")


@dataclass
class _Call:
    """A call without its tensors, and the values that its forward leaves to its backward."""

    kind: Kind
    context: Context
    sequence_parallel: bool
    rows: int  # of all ranks
    own_bias_gradient: bool
    main_grad: torch.Tensor | None  # the parameter whose main_grad takes the gradient
    owner: weights.Owner
    dtype: torch.dtype = torch.float32  # of the product
    packs: bool = False
    is_direct: bool = False  # later calls of the owner can be; see plait.torch.direct
    weight: torch.Tensor | None = None  # as the caller has it, where it is packed
    state: _native.LinearState | None = None

    @property
    def name(self) -> str:
        return f"{self.kind}_parallel_linear"

    def own_rows(self) -> int:
        """Count the rows that this rank has where ranks share them."""
        if not self.sequence_parallel:
            return self.rows
        comm = self.context.comm
        return _native.balanced_shard(self.rows, comm.rank, comm.world).count

    def prepare(self, weight: torch.Tensor, dtype: torch.dtype) -> None:
        """Choose how the weight is multiplied, and what forward keeps: on all ranks alike."""
        trains = torch.is_grad_enabled() and weight.requires_grad
        if trains and self.main_grad is not None:
            main_grad_of(self.main_grad, self.name)
        self.dtype = dtype
        # Tensors of inference mode don't count their versions.
        promised = self.context.options.fixed_weights and not weight.is_inference()
        self.packs = promised and not trains
        keeps = not self.context.settings.recompute_all_gather
        if trains and keeps and self.sequence_parallel and self.kind == "column":
            self.state = _native.LinearState()
        self.weight = weight if self.packs else None

    def run(
        self,
        what: Hashable,
        products: int,
        x: torch.Tensor,
        weight: torch.Tensor,
        call: Callable[[], None],
    ) -> None:
        """Make a native call of these sizes, with so many products of all rows."""
        count_layer(self.rows, weight.shape[1], weight.shape[0], products)
        self.context.run((self.shape_of(what, weight), x.shape[0]), call)

    def shape_of(self, what: Hashable, weight: torch.Tensor) -> Hashable:
        """Return all but the rows of what the report tells calls apart by."""
        return self.kind, what, weight.shape, weight.dtype, self.sequence_parallel

    def native(self, rows: torch.Tensor) -> Any:
        """Return the native layer for a weight, which the context keeps."""
        dtype = tensors.DTYPES[self.dtype]
        kind = _native.WeightKind(dtype, is_packed=self.packs)
        layer = self.layer_of(rows.shape[0], rows.shape[1], kind, dtype.name)
        if self.is_direct:
            shape = self.shape_of("forward", rows)
            self.context.direct[self.owner] = Direct(self.kind, layer, self.packs, shape)
        return layer

    def multiplied(self, rows: torch.Tensor, *, turned: bool = False) -> weights.Native:
        """Return the weight as the layer takes it."""
        if self.packs:
            assert self.weight is not None
            return weights.packed(self.weight, self.dtype, self.owner, turned=turned)
        return weights.plain(rows)

    def layer_of(self, outputs: int, inputs: int, kind: _native.WeightKind, dtype: str) -> Any:
        """Return the layer of these sizes, and make it at its first call, which is collective."""

        def make() -> Layer:
            desc = _native.LinearDesc(
                inputs=inputs,
                outputs=outputs,
                layout=_native.WeightLayout.out_in,
                weight=kind,
                turned=kind if self.packs else None,
            )
            column = self.kind == "column"
            bound = _native.ColumnParallelLinear if column else _native.RowParallelLinear
            options = self.context.linear_options(self.sequence_parallel)
            return bound(desc, self.context.comm, options)

        key = (self.kind, inputs, outputs, dtype, str(kind), self.sequence_parallel)
        return self.context.layer(self.owner, key, make)


def _apply(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, call: _Call
) -> torch.Tensor:
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype
    x, bias = tensors.by_autocast(x, bias)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    check_matrix(rows, call.name, "x")
    bias_row(bias, weight.shape[0], call.name)  # refuses what it can't be
    rows = as_rows(rows)
    call.prepare(weight, dtype)
    # A packed weight is converted when it is packed, and not in each call.
    weight_rows = weight if call.packs else as_rows(weight.to(dtype))
    if not tensors.wants_gradient(rows, weight_rows, bias):
        call.is_direct = dtype is weight.dtype and not call.sequence_parallel
        return _Linear.forward(rows, weight_rows, bias, call)
    out: torch.Tensor = _Linear.apply(rows, weight_rows, bias, call)  # type: ignore[no-untyped-call]
    return out


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
    if options.engine == "c10d":
        refuse(name, "engine='c10d' has no products of quantised weights")
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
    context = context_of(group, options, name)
    call = _Call(kind, context, False, rows.shape[0], False, None, layer or weights.Owner())
    native = call.layer_of(
        weight.n, weight.k, _native.WeightKind(weight.dtype, weight.scheme), str(x.dtype)
    )
    out = x.new_empty(rows.shape[0], weight.n)
    added = bias_row(bias, weight.n, name)
    bias_view = None if added is None else view(added)
    forward = functools.partial(native.forward, view(rows), weight, view(out), bias=bias_view)
    count_layer(rows.shape[0], weight.k, weight.n, 1)
    context.run((name, rows.shape, weight.n, rows.dtype), forward)
    return out.reshape(*x.shape[:-1], weight.n)


class _Linear(torch.autograd.Function):
    """Rows by a weight. A backward takes the x that autograd hands it, not the one forward saw."""

    @staticmethod
    def forward(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, call: _Call
    ) -> torch.Tensor:
        rows = call.own_rows() if call.kind == "row" else call.rows
        out = x.new_empty(rows, weight.shape[0])
        added = bias_row(bias, weight.shape[0], call.name)
        forward = functools.partial(
            call.native(weight).forward,
            view(x),
            call.multiplied(weight),
            view(out),
            bias=None if added is None else view(added),
            state=call.state,
        )
        call.run("forward", 1, x, weight, forward)
        return out

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor, Any, _Call], output: torch.Tensor
    ) -> None:
        x, weight, bias, call = inputs
        keeps_x = ctx.needs_input_grad[1] and call.state is None
        ctx.save_for_backward(x if keeps_x else None, weight)
        ctx.call = call
        ctx.x_rows = x.shape[0]
        ctx.bias_dtype = None if bias is None else bias.dtype

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        x, weight = ctx.saved_tensors
        call: _Call = ctx.call
        if not needs_x and not needs_weight and not needs_bias:
            return None, None, None, None
        grad_out = as_rows(grad_out.resolve_neg())
        grad_x = grad_out.new_empty(ctx.x_rows, weight.shape[1]) if needs_x else None
        main_grad = None
        grad_weight = None
        if needs_weight:
            call.owner.packed.clear()  # the weight will change
            # The program may have put another one in its place since forward.
            if call.main_grad is not None:
                main_grad = main_grad_of(call.main_grad, call.name)
            grad_weight = weight.new_empty(weight.shape) if main_grad is None else main_grad
        grad_bias = None
        by_native = needs_bias and not call.own_bias_gradient
        if by_native:
            grad_bias = grad_out.new_zeros(1, weight.shape[0], dtype=ctx.bias_dtype)
        backward = functools.partial(
            call.native(weight).backward,
            view(grad_out),
            x=None if x is None else view(x),
            weight=call.multiplied(weight) if needs_x and not call.packs else None,
            turned=call.multiplied(weight, turned=True) if needs_x and call.packs else None,
            grad_x=None if grad_x is None else view(grad_x),
            grad_weight=None if grad_weight is None else view(grad_weight),
            grad_bias=None if grad_bias is None else view(grad_bias),
            accumulate=main_grad is not None,
            rows=call.rows,
            state=call.state,
        )
        what = "backward", needs_x, needs_weight
        call.run(what, needs_x + needs_weight, grad_out, weight, backward)
        if needs_bias:
            grad_bias = grad_bias[0] if grad_bias is not None else grad_out.sum(0)
        if call.main_grad is not None and needs_weight:
            grad_weight = placeholder(call.main_grad, weight)
        return grad_x, grad_weight, grad_bias, None
