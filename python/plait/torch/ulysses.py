"""Sequence parallelism by all-to-all: two linear layers around an attention.

Outside of the attention each rank has its own positions of the sequence, and inside it has its own
heads for all positions. UlyssesQKV takes the step in, and UlyssesOutput the step out, each with its
all-to-all hidden behind the product. Every rank has the whole weights.
"""

import copy
import math
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from plait import _native
from plait.errors import refuse
from plait.torch import tensors, weights
from plait.torch.context import Context, context_of, group_place
from plait.torch.graphs import outside_of_graphs
from plait.torch.layers import check_linear
from plait.torch.once import differentiable_once
from plait.torch.options import Options, check_options
from plait.torch.rows import (
    as_rows,
    bias_row,
    check_matrix,
    count_of_rows,
    float_dtype,
    own_rows,
    rows_that_all_have,
    shard_of_rows,
    view,
)

_DEFAULTS = Options()
_Columns = list[list[tuple[int, int]]]
_Kind = Literal["UlyssesQKV", "UlyssesOutput"]
_Self = TypeVar("_Self", bound="_Ulysses")


class _Call:
    """A call of a layer, for its backward."""

    def __init__(self, kind: _Kind, context: Context, columns: _Columns, rows: int) -> None:
        self.name, self.context, self.columns, self.rows = kind, context, columns, rows
        self.state: _native.UlyssesState | None = None

    def own_rows(self) -> int:
        return own_rows(self.rows, self.context.place, -1)

    def own_columns(self) -> int:
        return sum(count for _, count in self.columns[self.context.place()[0]])

    def layer(self, weight: torch.Tensor) -> Any:
        """Make the native layer, which keeps nothing."""
        settings = self.context.settings
        outputs, inputs = weight.shape
        return getattr(_native, self.name)(
            inputs,
            outputs,
            self.columns,
            self.context.comm,
            plans=self.context.plans,  # those of settings too
            threads=settings.threads,
            backend=settings.backend,
        )

    def forward(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, keeps: bool
    ) -> torch.Tensor:
        is_qkv = self.name == "UlyssesQKV"
        shape = (self.rows, self.own_columns()) if is_qkv else (self.own_rows(), weight.shape[0])
        out = x.new_empty(shape)
        added = bias_row(bias, weight.shape[0], self.name)
        if keeps and not is_qkv:
            self.state = _native.UlyssesState()
        self.layer(weight).forward(
            view(x),
            weights.plain(weight),
            view(out),
            bias=None if added is None else view(added),
            state=self.state,
        )
        return out


class _Linear(torch.autograd.Function):
    """Rows by a weight, with the all-to-all beside it."""

    @staticmethod
    def forward(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, call: _Call
    ) -> torch.Tensor:
        return call.forward(x, weight, bias, weight.requires_grad)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor, Any, _Call], output: torch.Tensor
    ) -> None:
        x, weight, _, call = inputs
        needs_x = call.state is None and weight.requires_grad
        ctx.save_for_backward(x if needs_x else None, weight)
        ctx.call = call

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        call: _Call = ctx.call
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        x, weight = ctx.saved_tensors
        grad_out = as_rows(grad_out.resolve_neg())
        outputs, inputs = weight.shape
        shape = (
            (call.own_rows(), inputs)
            if call.name == "UlyssesQKV"
            else (call.rows, call.own_columns())
        )
        grad_x = grad_out.new_empty(shape) if needs_x else None
        grad_weight = weight.new_empty(weight.shape) if needs_weight else None
        grad_bias = grad_out.new_empty(1, outputs) if needs_bias else None
        call.layer(weight).backward(
            view(grad_out),
            x=None if x is None or not needs_weight else view(x),
            weight=weights.plain(weight) if needs_x else None,
            grad_x=None if grad_x is None else view(grad_x),
            grad_weight=None if grad_weight is None else view(grad_weight),
            grad_bias=None if grad_bias is None else view(grad_bias),
            state=call.state,
        )
        return grad_x, grad_weight, None if grad_bias is None else grad_bias[0], None


class _Ulysses(nn.Module):
    """The base of both layers: a whole weight, and the columns of each rank."""

    _kind: _Kind

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        columns: _Columns,
        *,
        group: dist.ProcessGroup | None = None,
        options: Options = _DEFAULTS,
    ) -> None:
        super().__init__()
        check_options(options, self._kind)
        if options.engine != "native":
            refuse(self._kind, "options.engine is 'c10d'; the all-to-all is served by 'native'")
        self.weight = _parameter(weight)
        self.bias = None if bias is None else _parameter(bias)
        self.columns = columns
        self.group = group
        self.options = options

    @outside_of_graphs
    def _multiply(self, x: torch.Tensor, rows: int | None) -> torch.Tensor:
        kind = self._kind
        tensors.refuse_tracing(kind, x)
        x, weight = tensors.resolved(x), tensors.resolved(self.weight)
        tensors.check(x, kind, "x")
        check_matrix(weight, kind, "weight")
        if x.dim() < 2:
            refuse(kind, "x has fewer than two dimensions; ranks share the first")
        x, bias = tensors.by_autocast(x, self.bias)
        float_dtype(x, kind, "x")
        weight = weight.to(x.dtype)
        context = context_of(self.group, self.options, kind)
        rank, world = context.place()
        if len(self.columns) != world:
            refuse(kind, f"there are {len(self.columns)} groups of columns for {world} ranks")
        first, inner = x.shape[0], math.prod(x.shape[1:-1])
        if kind == "UlyssesQKV":
            given = -1 if rows is None else count_of_rows(rows, kind)
            all_rows = rows_that_all_have(kind, first, context.place, given)
        else:
            all_rows = first
        own = shard_of_rows(all_rows, inner, rank, world, kind)
        call = _Call(kind, context, self.columns, all_rows * inner)
        cols = weight.shape[1] if kind == "UlyssesQKV" else call.own_columns()
        if x.shape[-1] != cols:
            refuse(kind, f"x is {list(x.shape)}; its last dimension must be {cols}")
        matrix, by = as_rows(x.reshape(first * inner, x.shape[-1])), as_rows(weight)
        if tensors.wants_gradient(matrix, by, bias):
            out: torch.Tensor = _Linear.apply(matrix, by, bias, call)  # type: ignore[no-untyped-call]
        else:
            out = call.forward(matrix, by, bias, keeps=False)
        out_first = all_rows if kind == "UlyssesQKV" else own
        return out.reshape(out_first, *x.shape[1:-1], out.shape[1])

    def __deepcopy__(self: _Self, memo: dict[int, Any]) -> _Self:
        memo[id(self.group)] = self.group  # a group can't be copied
        memo[id(self)] = copied = type(self).__new__(type(self))
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def extra_repr(self) -> str:
        """Say the sizes of the whole weight."""
        outputs, inputs = self.weight.shape
        return f"in_features={inputs}, out_features={outputs}, bias={self.bias is not None}"


class UlyssesQKV(_Ulysses):
    """The product before an attention: own rows in, all rows of this rank's q, k and v out.

    `x` is [own rows, ..., inputs], and the result [all rows, ..., columns of this rank]. `sizes`
    are the columns of q, k and v in it, for split().
    """

    _kind = "UlyssesQKV"
    sizes: tuple[int, int, int]

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        *,
        heads: int,
        kv_heads: int | None = None,
        interleaved: bool = False,
        group: dist.ProcessGroup | None = None,
        options: Options = _DEFAULTS,
    ) -> "UlyssesQKV":
        """Take over a whole layer's own parameters.

        Its outputs are [all q | all k | all v], or with `interleaved` [its q | k | v] for each kv
        head. Ranks get whole kv heads with the heads that these serve, in balanced shares. If
        there are more ranks than kv heads, as many share each of them, and have copies of it.
        """
        name = f"{cls.__name__}.from_linear"
        check_linear(linear, options, name, "weight")
        kv_heads = heads if kv_heads is None else kv_heads
        size, rest = divmod(linear.weight.shape[0], heads + 2 * kv_heads)
        if rest != 0:
            refuse(
                name,
                f"the weight has {linear.weight.shape[0]} outputs, which {heads} heads and twice "
                f"{kv_heads} kv heads can't share evenly",
            )
        rank, world = group_place(group, name)
        columns = _native.qkv_columns(heads, kv_heads, size, world, interleaved=interleaved)
        layer = cls(linear.weight, linear.bias, columns, group=group, options=options)
        own = max(_native.balanced_shard(kv_heads, rank, world).count, 1) * size
        layer.sizes = (sum(count for _, count in columns[rank]) - 2 * own, own, own)
        return layer

    def forward(self, x: torch.Tensor, rows: int | None = None) -> torch.Tensor:
        """Multiply; `rows` is the size of the first dimension where ranks' shares are uneven."""
        return self._multiply(x, rows)

    def split(self, out: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return q, k and v of a result, of a layer made by from_linear()."""
        parts: tuple[torch.Tensor, ...] = out.split(self.sizes, dim=-1)
        return parts


class UlyssesOutput(_Ulysses):
    """The product after an attention: all rows of this rank's heads in, own rows out.

    `x` is [all rows, ..., columns of this rank's heads], and the result [own rows, ..., outputs].
    """

    _kind = "UlyssesOutput"

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        *,
        heads: int,
        kv_heads: int | None = None,
        group: dist.ProcessGroup | None = None,
        options: Options = _DEFAULTS,
    ) -> "UlyssesOutput":
        """Take over a whole layer's own parameters; ranks have the heads that UlyssesQKV gives."""
        name = f"{cls.__name__}.from_linear"
        check_linear(linear, options, name, "weight")
        size, rest = divmod(linear.weight.shape[1], heads)
        if rest != 0:
            refuse(
                name,
                f"the weight has {linear.weight.shape[1]} inputs, which {heads} heads can't share "
                "evenly",
            )
        _, world = group_place(group, name)
        columns = _native.head_columns(heads, heads if kv_heads is None else kv_heads, size, world)
        return cls(linear.weight, linear.bias, columns, group=group, options=options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Multiply this rank's rows, of which the other ranks bring their heads."""
        return self._multiply(x, None)


def _parameter(tensor: torch.Tensor) -> nn.Parameter:
    """Return the very parameter, which an optimizer may know already."""
    if isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor, requires_grad=tensor.requires_grad)
