"""The engine "native": plait's kernels on the CPU, and its collectives. Layers are native too."""

import functools
from collections.abc import Callable, Hashable
from typing import Any
from weakref import ref

import torch

from plait import _native
from plait.errors import refuse
from plait.torch import tensors, weights
from plait.torch.context import Context, Layer
from plait.torch.engines.engine import Call, Engine, Gradients, Operands
from plait.torch.flops import count_layer
from plait.torch.groups import alive
from plait.torch.main_grad import main_grad_of, placeholder
from plait.torch.rows import (
    GATHERING,
    ROWS_OF,
    as_rows,
    bias_row,
    check_floats,
    check_matrix,
    float_dtype,
    own_rows,
    rows_that_all_have,
    view,
)


def check_operands(name: str, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Refuse operands of a layer whose memory can't be read, or that don't fit."""
    tensors.check(x, name, "x")
    check_matrix(weight, name, "weight")
    if x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        refuse(
            name,
            f"x is {list(x.shape)} and weight {list(weight.shape)}; "
            "the last dimensions must be equal",
        )


class Native(Engine):
    """Makes calls with what a context keeps for a process group."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def place(self) -> tuple[int, int]:
        """Return this rank and the number of ranks."""
        return self.context.place()

    def multiply(
        self,
        operator: str,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        turned: bool,
        rows: int,
        gathered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Multiply operands whose memory can be read."""
        if gathered is None:
            out = self.context.operators[operator].run(x, weight, bias, turned, rows)
            if isinstance(out, torch.Tensor):
                return out
        check_floats(weight, operator, "weight")
        check_floats(x, operator, "x")
        weight, x = as_rows(weight), as_rows(x)
        by = weights.plain(weight, turned=turned)
        return self.multiply_by(operator, x, by, bias, rows, gathered)

    def multiply_by(
        self,
        operator: str,
        x: torch.Tensor,
        by: weights.Native,
        bias: torch.Tensor | None,
        rows: int,
        gathered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Multiply rows by a weight as the native operator takes it."""
        context = self.context
        added = bias_row(bias, by.n, operator)
        if operator in GATHERING:
            out_rows = rows_that_all_have(operator, x.shape[0], context.place, rows)
        else:
            out_rows = ROWS_OF[operator](x.shape[0], context.place, rows)
        out = x.new_empty(out_rows, by.n)
        call = functools.partial(
            getattr(_native, operator),
            view(x),
            by,
            view(out),
            context.comm,
            bias=None if added is None else view(added),
            gathered=None if gathered is None else view(gathered),
            wire=context.settings.wire,
            plans=context.plans,
            threads=context.settings.threads,
            backend=context.settings.backend,
        )
        context.run((operator, x.shape, by.n, x.dtype), call)
        return out

    # Collectives of rows.

    def gathered(self, x: torch.Tensor, rows: int) -> torch.Tensor:
        """Return the rows of all ranks, `rows` in all."""
        x, out, comm = x.contiguous(), x.new_empty(rows, x.shape[1]), self.context.comm
        dtype, counts = float_dtype(x, "all_gather", "x"), _counts(out, comm.world)
        _native._all_gather_at(
            x.data_ptr(), x.numel(), out.data_ptr(), out.numel(), dtype, comm, counts
        )
        return out

    def sum_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum over ranks."""
        x, out = x.contiguous(), x.new_empty(x.shape)
        dtype = float_dtype(x, "all_reduce", "x")
        _native._all_reduce_at(x.data_ptr(), out.data_ptr(), x.numel(), dtype, self.context.comm)
        return out

    def own_sum_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows of the sum over ranks."""
        rows, comm = own_rows(x.shape[0], self.place, -1), self.context.comm
        x, out = x.contiguous(), x.new_empty(rows, x.shape[1])
        dtype, counts = float_dtype(x, "reduce_scatter", "x"), _counts(x, comm.world)
        _native._reduce_scatter_at(
            x.data_ptr(), x.numel(), out.data_ptr(), out.numel(), dtype, comm, counts
        )
        return out

    # Layers.

    def prepare(
        self, call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> Operands:
        """Choose how the weight is multiplied, and what forward keeps."""
        x, bias = tensors.by_autocast(x, bias)
        float_dtype(x, call.name, "x")
        bias_row(bias, weight.shape[0], call.name)  # refuses what it can't be
        call.owner = weights.owner_of(weight) if call.layer is None else call.layer
        trains = torch.is_grad_enabled() and weight.requires_grad
        if trains and call.main_grad is not None:
            main_grad_of(call.main_grad, call.name)
        autocast = torch.is_autocast_enabled("cpu")
        call.dtype = torch.get_autocast_dtype("cpu") if autocast else weight.dtype
        call.bias_dtype = None if bias is None else bias.dtype
        # Tensors of inference mode don't count their versions.
        promised = self.context.options.fixed_weights and not weight.is_inference()
        call.packs = promised and not trains
        keeps = not self.context.settings.recompute_all_gather
        if trains and keeps and call.sequence_parallel and call.kind == "column":
            call.state = _native.LinearState()
        call.weight = weight if call.packs else None
        call.is_direct = call.dtype is weight.dtype and not call.sequence_parallel
        # A packed weight is converted when it is packed, and not in each call.
        by = weight if call.packs else as_rows(weight.to(call.dtype))
        return as_rows(x), by, bias

    def forward(
        self, call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Multiply, and communicate beside it."""
        rows = call.own_rows() if call.kind == "row" else call.rows
        out = x.new_empty(rows, weight.shape[0])
        added = bias_row(bias, weight.shape[0], call.name)
        forward = functools.partial(
            self._layer(call, weight).forward,
            view(x),
            _as_taken(call, weight),
            view(out),
            bias=None if added is None else view(added),
            state=call.state,
        )
        self._run(call, "forward", 1, x, weight, forward)
        return out

    def backward(
        self,
        call: Call,
        needs: tuple[bool, bool, bool],
        grad_out: torch.Tensor,
        x: torch.Tensor | None,
        weight: torch.Tensor,
    ) -> Gradients:
        """Multiply for the gradients, and communicate beside that."""
        needs_x, needs_weight, needs_bias = needs
        if not needs_x and not needs_weight and not needs_bias:
            return None, None, None
        grad_out = as_rows(grad_out.resolve_neg())
        x_rows = call.own_rows() if call.kind == "column" else call.rows
        grad_x = grad_out.new_empty(x_rows, weight.shape[1]) if needs_x else None
        main_grad = None
        grad_weight = None
        if needs_weight:
            call.owner.packed.clear()  # the weight will change
            # The program may have put another one in its place since forward.
            if call.main_grad is not None:
                main_grad = main_grad_of(call.main_grad, call.name)
            grad_weight = weight.new_empty(weight.shape) if main_grad is None else main_grad
        grad_bias = None
        if needs_bias and not call.own_bias_gradient:
            grad_bias = grad_out.new_zeros(1, weight.shape[0], dtype=call.bias_dtype)
        backward = functools.partial(
            self._layer(call, weight).backward,
            view(grad_out),
            x=None if x is None else view(x),
            weight=_as_taken(call, weight) if needs_x and not call.packs else None,
            turned=_as_taken(call, weight, turned=True) if needs_x and call.packs else None,
            grad_x=None if grad_x is None else view(grad_x),
            grad_weight=None if grad_weight is None else view(grad_weight),
            grad_bias=None if grad_bias is None else view(grad_bias),
            accumulate=main_grad is not None,
            rows=call.rows,
            state=call.state,
        )
        what = "backward", needs_x, needs_weight
        self._run(call, what, needs_x + needs_weight, grad_out, weight, backward)
        if needs_bias:
            grad_bias = grad_bias[0] if grad_bias is not None else grad_out.sum(0)
        if call.main_grad is not None and needs_weight:
            grad_weight = placeholder(call.main_grad, weight)
        return grad_x, grad_weight, grad_bias

    def multiply_quantized(
        self,
        call: Call,
        x: torch.Tensor,
        weight: _native.PackedWeight,
        bias: torch.Tensor | None,
    ) -> torch.Tensor:
        """Multiply rows by a layer's quantised weight."""
        kind = _native.WeightKind(weight.dtype, weight.scheme)
        layer = self._layer_of(call, weight.n, weight.k, kind, str(x.dtype))
        out = x.new_empty(x.shape[0], weight.n)
        added = bias_row(bias, weight.n, call.name)
        bias_view = None if added is None else view(added)
        forward = functools.partial(layer.forward, view(x), weight, view(out), bias=bias_view)
        count_layer(x.shape[0], weight.k, weight.n, 1)
        self.context.run((call.name, x.shape, weight.n, x.dtype), forward)
        return out

    def _run(
        self,
        call: Call,
        what: Hashable,
        products: int,
        x: torch.Tensor,
        weight: torch.Tensor,
        run: Callable[[], None],
    ) -> None:
        """Make a native call of these sizes, with so many products of all rows."""
        count_layer(call.rows, weight.shape[1], weight.shape[0], products)
        self.context.run((_shape_of(call, what, weight), x.shape[0]), run)

    def _layer(self, call: Call, weight: torch.Tensor) -> Any:
        """Return the native layer for a weight, which the context keeps."""
        dtype = tensors.DTYPES[call.dtype]
        kind = _native.WeightKind(dtype, is_packed=call.packs)
        layer = self._layer_of(call, weight.shape[0], weight.shape[1], kind, dtype.name)
        if call.is_direct:
            self._keep_direct(call, layer)
        return layer

    def _keep_direct(self, call: Call, layer: Layer) -> None:
        context = self.context
        made = _native._DirectLayer(
            tensors.TORCH,
            tensors.MODES,
            layer,
            context.samples.direct[call.kind],
            kind=call.kind,
            group=context.group,
            groups=alive(),
            options=context.options,
            comm=context.comm,
            plans=context.plans,
            samples=context.samples,
        )
        context.direct[call.owner] = made
        call.owner.direct = ref(made)

    def _layer_of(
        self, call: Call, outputs: int, inputs: int, kind: _native.WeightKind, dtype: str
    ) -> Any:
        """Return the layer of these sizes, and make it at its first call, which is collective."""

        def make() -> Layer:
            desc = _native.LinearDesc(
                inputs=inputs,
                outputs=outputs,
                layout=_native.WeightLayout.out_in,
                weight=kind,
                turned=kind if call.packs else None,
            )
            column = call.kind == "column"
            bound = _native.ColumnParallelLinear if column else _native.RowParallelLinear
            options = self.context.linear_options(call.sequence_parallel)
            return bound(desc, self.context.comm, options)

        key = (call.kind, inputs, outputs, dtype, str(kind), call.sequence_parallel)
        return self.context.layer(call.owner, key, make)


def _counts(rows: torch.Tensor, world: int) -> list[int]:
    """Count the elements of each rank's rows."""
    m, columns = rows.shape
    return [_native.balanced_shard(m, rank, world).count * columns for rank in range(world)]


def _shape_of(call: Call, what: Hashable, weight: torch.Tensor) -> Hashable:
    """Return what makes a line of the report, but for the rows."""
    return call.kind, what, weight.shape, weight.dtype, call.sequence_parallel


def _as_taken(call: Call, weight: torch.Tensor, *, turned: bool = False) -> weights.Native:
    """Return the weight as the native layer takes it."""
    if call.packs:
        assert call.weight is not None
        return weights.packed(call.weight, call.dtype, call.owner, turned=turned)
    return weights.plain(weight)
