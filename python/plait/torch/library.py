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
from plait.torch import quantized, tensors
from plait.torch.context import Context
from plait.torch.definitions import define
from plait.torch.engines.choice import choose_for, refuse_quantized
from plait.torch.engines.engine import Engine, Pair
from plait.torch.engines.native import Native
from plait.torch.flops import register_operator
from plait.torch.how import (
    How,
    context_for,
    is_c10d,
    known_context_for,
    never_turned,
    size_of_group,
    turned_and_rows,
)
from plait.torch.rows import (
    GATHERING,
    ROWS_OF,
    as_rows,
    check_floats,
    check_matrix,
    rows_that_all_have,
)

_HOW = 'str group, str schedule="", int parts=0, str wire=""'
_TURNED = ", bool turned=False"
_FIXED = ", bool fixed_weights=False"  # of quantised weights, in the place of `turned`
_ROWS = ", int rows=-1"


class Operator:
    """One operator: its sizes and its kernels, of plain and of quantised weights."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gathers = name in GATHERING
        rows_of_all = _ROWS if self.gathers else ""
        define(
            f"{name}(Tensor x, Tensor weight, Tensor? bias, {_HOW}{_TURNED}{rows_of_all})"
            " -> Tensor",
            self.run,
            self.fake,
            self.run_by_engine,
        )
        define(
            f"{name}_quantized(Tensor x, Tensor values, Tensor scales, Tensor? offsets, "
            f"str scheme, Tensor? bias, {_HOW}{_FIXED}{rows_of_all}) -> Tensor",
            self.run_quantized,
            self.fake_quantized,
        )
        register_operator(name, is_compute_first=_native.traits_of(name).compute_first)

    def rows_of(self, x: torch.Tensor, how: How) -> int:
        """Count the rows of a result, while tracing too."""
        place = functools.partial(size_of_group, how.group, self.name)
        return ROWS_OF[self.name](x.shape[0], place, how.rows)

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
        return self.run_by_engine(x, weight, bias, *how)

    def run_by_engine(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any
    ) -> torch.Tensor:
        """Multiply by a plain weight with the engine that is to do it."""
        engine, given = self.engine_of(x, weight, bias, how)
        return engine.multiply(self.name, x, weight, bias, given.turned, given.rows)

    def engine_of(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        how: tuple[Any, ...],
    ) -> tuple[Engine, How]:
        """Return what serves a call, and the arguments beside its operands."""
        if not is_c10d(how) and not x.is_cuda:
            check_matrix(x, self.name, "x")
            check_matrix(weight, self.name, "weight")
            if bias is not None:
                tensors.check(bias, self.name, "bias")
        given = How(*how)
        return choose_for(given, self.name, x, how), given

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
        refuse_quantized(self.name, "c10d" if is_c10d(how) else "native")
        tensors.check(x, self.name, "x")
        given, fixed = never_turned(*how)
        parts = values, scales, offsets, scheme
        by = quantized.packed(*parts, x.shape[-1], self.name, fixed=fixed)
        check_floats(x, self.name, "x")
        x = as_rows(x)
        engine = Native(context_for(given, self.name))
        return engine.multiply_by(self.name, x, by, bias, given.rows, gathered)


OPERATORS = {name: Operator(name) for name in ROWS_OF}

# all_gather_matmul that also returns the gathered x.
_gather_first = OPERATORS["all_gather_matmul"]
GATHERED = "all_gather_matmul_gathered"


def _gathered_fake(x: torch.Tensor, weight: torch.Tensor, bias: Any, *how: Any) -> Pair:
    out = _gather_first.fake(x, weight, bias, *how)
    return out, x.new_empty(out.shape[0], x.shape[1])


def _gathered_run(x: torch.Tensor, weight: torch.Tensor, bias: Any, *how: Any) -> Pair:
    engine, given = _gather_first.engine_of(x, weight, bias, how)
    return engine.multiply_and_gather(x, weight, bias, given.turned, given.rows)


def _gathered_quantized_fake(x: torch.Tensor, *operands: Any) -> Pair:
    out = _gather_first.fake_quantized(x, *operands)
    return out, x.new_empty(out.shape[0], x.shape[1])


def _gathered_quantized_run(x: torch.Tensor, *operands: Any) -> Pair:
    how = How(*operands[5:])
    place = functools.partial(size_of_group, how.group, _gather_first.name)
    rows = rows_that_all_have(_gather_first.name, x.shape[0], place, how.rows)
    gathered = x.new_empty(rows, x.shape[1])
    return _gather_first.run_quantized(x, *operands, gathered=gathered), gathered


define(
    f"{GATHERED}(Tensor x, Tensor weight, Tensor? bias, {_HOW}{_TURNED}{_ROWS})"
    " -> (Tensor, Tensor)",
    _gathered_run,
    _gathered_fake,
    _gathered_run,
)
define(
    f"{GATHERED}_quantized(Tensor x, Tensor values, Tensor scales, Tensor? offsets, "
    f"str scheme, Tensor? bias, {_HOW}{_FIXED}{_ROWS}) -> (Tensor, Tensor)",
    _gathered_quantized_run,
    _gathered_quantized_fake,
)
register_operator(GATHERED, is_compute_first=False)


def _kernel(
    name: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    context: Context,
    turned: bool,
    rows: int,
) -> Any:
    if name == GATHERED:
        return Native(context).multiply_and_gather(x, weight, bias, turned, rows)
    return Native(context).multiply(name, x, weight, bias, turned, rows)


# The functions of calls that bypass torch's dispatcher.
KERNELS: dict[str, Callable[..., Any]] = {
    name: functools.partial(_kernel, name) for name in (*OPERATORS, GATHERED)
}
