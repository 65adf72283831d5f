"""The operators as operators of torch: their schemas, kernels and fakes.

A program calls plait.torch.operators. What is here is what a compiler sees: plain arguments, a
group by its name, fresh results. Weights are tensors [n, k], or with `turned` [k, n]; quantised
ones come as their parts, in operators whose names end in "_quantized". The gradients are in
plait.torch.gradients.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from plait import _native
from plait.errors import refuse
from plait.torch import quantized, tensors, weights
from plait.torch.by_products import check_for_products, products_for
from plait.torch.context import Context
from plait.torch.how import (
    How,
    context_for,
    is_c10d,
    known_context_for,
    never_turned,
    size_of_group,
    turned_and_rows,
)
from plait.torch.report import count_other
from plait.torch.rows import (
    as_rows,
    bias_row,
    check_floats,
    check_matrix,
    view,
)

LIBRARY = torch.library.Library("plait", "DEF")
_HOW = 'str group, str schedule="", int parts=0, str wire=""'
_TURNED = ", bool turned=False"
_FIXED = ", bool fixed_weights=False"  # of quantised weights, in the place of `turned`
_ROWS = ", int rows=-1"


def define(
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    on_gpu: Callable[..., Any] | None = None,
) -> None:
    """Define an operator of torch, its kernels and what compilers call in their place.

    Torch also calls the latter where some operands are on meta, and others have values.
    """
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CPU")
    if on_gpu is not None:
        LIBRARY.impl(name, on_gpu, "CUDA")
    parameters = [one.name for one in getattr(torch.ops.plait, name).default._schema.arguments]

    @functools.wraps(fake)
    def checked(*operands: Any) -> Any:
        given = dict(zip(parameters, operands, strict=False))
        found = {key: one for key, one in given.items() if isinstance(one, torch.Tensor)}
        if len({one.is_meta for one in found.values()}) > 1:
            for key, one in found.items():
                if one.is_meta:
                    tensors.check(one, name, key)
        return fake(*operands)

    torch.library.register_fake(f"plait::{name}", checked, lib=LIBRARY)


# How many rows a result has: of the rows of x, of where this rank stands (its rank, and how many
# there are), and of the rows of all ranks, which are -1 where each has as many.
Place = Callable[[], tuple[int, int]]
_RowsOf = Callable[[int, Place, int], int]


def _same_rows(own: int, place: Place, rows: int) -> int:
    return own


def own_rows(m: int, place: Place, rows: int) -> int:
    """Count this rank's rows of m that the ranks share."""
    rank, size = place()
    return (m + size - 1 - rank) // size  # the first (m mod size) ranks own one row more


def _all_rows(own: int, place: Place, rows: int) -> int:
    return own * place()[1] if rows < 0 else rows


def rows_that_all_have(operator: str, own: int, place: Place, rows: int) -> int:
    """Count the rows of all ranks, or refuse a count of which `own` are not this rank's.

    It is asked before memory for them is: a wrong count may be one that no memory holds.
    """
    rows = _all_rows(own, place, rows)
    share = own_rows(rows, place, -1)
    if own != share:
        rank, world = place()
        refuse(operator, f"x has {own} rows, and rank {rank} of {world} has {share} of {rows}")
    return rows


class Operator:
    """One operator: its sizes and its kernels, of plain and of quantised weights."""

    def __init__(self, name: str, rows: _RowsOf) -> None:
        self.name, self.rows = name, rows
        self.native = getattr(_native, name)
        self.gathers = rows is _all_rows
        rows_of_all = _ROWS if self.gathers else ""
        define(
            f"{name}(Tensor x, Tensor weight, Tensor? bias, {_HOW}{_TURNED}{rows_of_all})"
            " -> Tensor",
            self.run,
            self.fake,
            self.run_by_products,
        )
        define(
            f"{name}_quantized(Tensor x, Tensor values, Tensor scales, Tensor? offsets, "
            f"str scheme, Tensor? bias, {_HOW}{_FIXED}{rows_of_all}) -> Tensor",
            self.run_quantized,
            self.fake_quantized,
        )

    def rows_of(self, x: torch.Tensor, how: How) -> int:
        """Count the rows of a result, while tracing too."""
        return self.rows(x.shape[0], lambda: size_of_group(how.group, self.name), how.rows)

    def fake(self, x: torch.Tensor, weight: torch.Tensor, bias: Any, *how: Any) -> torch.Tensor:
        """Return a result of the right shape, dtype and strides, which compilers look at."""
        given = How(*how)
        return x.new_empty(self.rows_of(x, given), weight.shape[1 if given.turned else 0])

    def run(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any
    ) -> torch.Tensor:
        """Multiply by a plain weight."""
        context = known_context_for(how)
        if context is not None:
            out = context.operators[self.name].run(x, weight, bias, *turned_and_rows(how))
            if isinstance(out, torch.Tensor):
                return out
        if is_c10d(how):
            return self.run_by_products(x, weight, bias, *how)
        self.check(x, weight, bias)
        given = How(*how)
        context = context_for(given, self.name, how)
        return self.multiply(x, weight, bias, context, given.turned, given.rows)

    def run_by_products(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any
    ) -> torch.Tensor:
        """Multiply by a plain weight on a GPU, or with torch's own products."""
        return self.multiply_by_products(x, weight, bias, How(*how), None)

    def multiply_by_products(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        how: How,
        gathered: torch.Tensor | None,
    ) -> torch.Tensor:
        """Do what run_by_products() does; `gathered` takes the rows of all ranks."""
        by = check_for_products(self.name, x, weight, bias, turned=how.turned)
        products = products_for(how, self.name, x)
        count_other(self.name, products.name)
        given: dict[str, Any] = {"bias": None if bias is None else bias.detach().to(x.dtype)}
        if gathered is not None:
            given["gathered"] = gathered
        if self.gathers:
            given["rows"] = rows_that_all_have(self.name, x.shape[0], products.place, how.rows)
        out: torch.Tensor = getattr(products, self.name)(x.detach(), by, **given)
        return out

    def check(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        """Raise Error where an operand's memory can't be read, or has no floats in it."""
        check_matrix(x, self.name, "x")
        check_matrix(weight, self.name, "weight")
        if bias is not None:
            tensors.check(bias, self.name, "bias")

    def multiply(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        context: Context,
        turned: bool,
        rows_of_all: int,
        gathered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Multiply operands that check() has let pass."""
        if gathered is None:
            operator = context.operators[self.name]
            out = operator.run(x, weight, bias, turned, rows_of_all)
            if isinstance(out, torch.Tensor):
                return out
        check_floats(weight, self.name, "weight")
        check_floats(x, self.name, "x")
        weight, x = as_rows(weight), as_rows(x)
        by = weights.plain(weight, turned=turned)
        return self._multiply(x, by, bias, context, rows_of_all, gathered)

    def fake_quantized(
        self,
        x: torch.Tensor,
        values: torch.Tensor,
        scales: torch.Tensor,
        offsets: torch.Tensor | None,
        scheme: str,
        bias: torch.Tensor | None,
        *how: Any,
    ) -> torch.Tensor:
        """Return what run_quantized() does, without its values."""
        return x.new_empty(self.rows_of(x, How(*how)), values.shape[0])

    def run_quantized(
        self,
        x: torch.Tensor,
        values: torch.Tensor,
        scales: torch.Tensor,
        offsets: torch.Tensor | None,
        scheme: str,
        bias: torch.Tensor | None,
        *how: Any,
        gathered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Multiply by a quantised weight."""
        if is_c10d(how):
            refuse(self.name, "engine='c10d' has no products of quantised weights")
        tensors.check(x, self.name, "x")
        given, fixed = never_turned(*how)
        parts = values, scales, offsets, scheme
        by = quantized.packed(*parts, x.shape[-1], self.name, fixed=fixed)
        check_floats(x, self.name, "x")
        x = as_rows(x)
        context = context_for(given, self.name)
        return self._multiply(x, by, bias, context, given.rows, gathered)

    def _multiply(
        self,
        x: torch.Tensor,
        by: weights.Native,
        bias: torch.Tensor | None,
        context: Context,
        rows_of_all: int,
        gathered: torch.Tensor | None,
    ) -> torch.Tensor:
        added = bias_row(bias, by.n, self.name)
        if self.gathers:
            rows = rows_that_all_have(self.name, x.shape[0], context.place, rows_of_all)
        else:
            rows = self.rows(x.shape[0], context.place, rows_of_all)
        out = x.new_empty(rows, by.n)
        call = functools.partial(
            self.native,
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
        context.run((self.name, x.shape, by.n, x.dtype), call)
        return out


OPERATORS = {
    name: Operator(name, rows)
    for name, rows in (
        ("matmul", _same_rows),
        ("matmul_all_reduce", _same_rows),
        ("matmul_reduce_scatter", own_rows),
        ("matmul_all_gather", _all_rows),
        ("all_gather_matmul", _all_rows),
        ("reduce_scatter_matmul", own_rows),
        ("all_reduce_matmul", _same_rows),
    )
}


# all_gather_matmul that also returns the gathered x.
_gather_first = OPERATORS["all_gather_matmul"]
GATHERED = "all_gather_matmul_gathered"
Pair = tuple[torch.Tensor, torch.Tensor]


def _gathered_fake(x: torch.Tensor, weight: torch.Tensor, bias: Any, *how: Any) -> Pair:
    out = _gather_first.fake(x, weight, bias, *how)
    return out, x.new_empty(out.shape[0], x.shape[1])


def _gathered_rows(x: torch.Tensor, how: How) -> int:
    place = functools.partial(size_of_group, how.group, _gather_first.name)
    return rows_that_all_have(_gather_first.name, x.shape[0], place, how.rows)


def _gathered_run(x: torch.Tensor, weight: torch.Tensor, bias: Any, *how: Any) -> Pair:
    if is_c10d(how):
        return _gathered_run_by_products(x, weight, bias, *how)
    _gather_first.check(x, weight, bias)
    given = How(*how)
    context = context_for(given, _gather_first.name)
    return _gathered_multiply(x, weight, bias, context, given.turned, given.rows)


def _gathered_run_by_products(x: torch.Tensor, weight: torch.Tensor, bias: Any, *how: Any) -> Pair:
    given = How(*how)
    rows = _gathered_rows(x, given)
    gathered = x.new_empty(rows, x.shape[1])
    return _gather_first.multiply_by_products(x, weight, bias, given, gathered), gathered


def _gathered_multiply(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    context: Context,
    turned: bool,
    rows_of_all: int,
) -> Pair:
    rows = rows_that_all_have(_gather_first.name, x.shape[0], context.place, rows_of_all)
    gathered = x.new_empty(rows, x.shape[1])
    how = (context, turned, rows_of_all)
    return _gather_first.multiply(x, weight, bias, *how, gathered=gathered), gathered


def _gathered_quantized_fake(x: torch.Tensor, *operands: Any) -> Pair:
    out = _gather_first.fake_quantized(x, *operands)
    return out, x.new_empty(out.shape[0], x.shape[1])


def _gathered_quantized_run(x: torch.Tensor, *operands: Any) -> Pair:
    rows = _gathered_rows(x, How(*operands[5:]))
    gathered = x.new_empty(rows, x.shape[1])
    return _gather_first.run_quantized(x, *operands, gathered=gathered), gathered


define(
    f"{GATHERED}(Tensor x, Tensor weight, Tensor? bias, {_HOW}{_TURNED}{_ROWS})"
    " -> (Tensor, Tensor)",
    _gathered_run,
    _gathered_fake,
    _gathered_run_by_products,
)
define(
    f"{GATHERED}_quantized(Tensor x, Tensor values, Tensor scales, Tensor? offsets, "
    f"str scheme, Tensor? bias, {_HOW}{_FIXED}{_ROWS}) -> (Tensor, Tensor)",
    _gathered_quantized_run,
    _gathered_quantized_fake,
)

# The functions of calls that bypass torch's dispatcher.
KERNELS: dict[str, Callable[..., Any]] = {
    **{name: operator.multiply for name, operator in OPERATORS.items()},
    GATHERED: _gathered_multiply,
}
