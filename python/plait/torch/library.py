"""The operators as operators of torch: their schemas, kernels and fakes.

A program calls plait.torch.operators. What is here is what a compiler sees: plain arguments, a
group by its name, fresh results. Weights are tensors [n, k], or with `turned` [k, n]; quantised
ones come as their parts, in operators whose names end in "_quantized". The gradients are in
plait.torch.gradients.
"""

import functools
from typing import Any

import torch

from plait import _native
from plait.torch import quantized, tensors
from plait.torch.context import Context
from plait.torch.definitions import define
from plait.torch.engines.choice import choose_for, refuse_quantized
from plait.torch.engines.engine import Engine
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


GATHERED = "all_gather_matmul_gathered"  # all_gather_matmul that also returns the gathered x


class Operator:
    """One operator: its sizes and its kernels, of plain and of quantised weights."""

    def __init__(self, called: str) -> None:
        self.pairs = called == GATHERED
        self.name = "all_gather_matmul" if self.pairs else called  # the native operator's
        self.gathers = self.name in GATHERING
        rows_of_all = _ROWS if self.gathers else ""
        returned = "(Tensor, Tensor)" if self.pairs else "Tensor"
        define(
            f"{called}(Tensor x, Tensor weight, Tensor? bias, {_HOW}{_TURNED}{rows_of_all})"
            f" -> {returned}",
            self.run_by_engine if self.pairs else self.run,
            self.fake,
            self.run_by_engine,
        )
        define(
            f"{called}_quantized(Tensor x, Tensor values, Tensor scales, Tensor? offsets, "
            f"str scheme, Tensor? bias, {_HOW}{_FIXED}{rows_of_all}) -> {returned}",
            self.run_quantized,
            self.fake_quantized,
        )
        register_operator(called, is_compute_first=_native.traits_of(self.name).compute_first)

    def rows_of(self, x: torch.Tensor, how: How) -> int:
        """Count the rows of a result, while tracing too."""
        place = functools.partial(size_of_group, how.group, self.name)
        return ROWS_OF[self.name](x.shape[0], place, how.rows)

    def fake(self, x: torch.Tensor, weight: torch.Tensor, bias: Any, *how: Any) -> Any:
        """Return a result of the right shape, dtype and strides, which compilers look at."""
        given = How(*how)
        return self._fake(x, weight.shape[1 if given.turned else 0], given)

    def _fake(self, x: torch.Tensor, outputs: int, how: How) -> Any:
        out = x.new_empty(self.rows_of(x, how), outputs)
        return (out, x.new_empty(out.shape[0], x.shape[1])) if self.pairs else out

    def run(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any
    ) -> Any:
        """Multiply by a plain weight, by the native operator alone where that can be."""
        context = known_context_for(how)
        if context is not None:
            out = context.operators[self.name].run(x, weight, bias, *turned_and_rows(how))
            if isinstance(out, torch.Tensor):
                return out
        return self.run_by_engine(x, weight, bias, *how)

    def run_by_engine(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any
    ) -> Any:
        """Multiply by a plain weight with the engine that is to do it."""
        if not is_c10d(how) and not x.is_cuda:
            check_matrix(x, self.name, "x")
            check_matrix(weight, self.name, "weight")
            if bias is not None:
                tensors.check(bias, self.name, "bias")
        given = How(*how)
        engine = choose_for(given, self.name, x, how)
        return self._multiply(engine, x, weight, bias, given.turned, given.rows)

    def run_native(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        context: Context,
        turned: bool,
        rows: int,
    ) -> Any:
        """Multiply operands whose memory can be read, without torch's dispatcher."""
        return self._multiply(Native(context), x, weight, bias, turned, rows)

    def _multiply(self, engine: Engine, *call: Any) -> Any:
        return (
            engine.multiply_and_gather(*call) if self.pairs else engine.multiply(self.name, *call)
        )

    def fake_quantized(
        self,
        x: torch.Tensor,
        values: torch.Tensor,
        scales: torch.Tensor,
        offsets: torch.Tensor | None,
        scheme: str,
        bias: torch.Tensor | None,
        *how: Any,
    ) -> Any:
        """Return what run_quantized() does, without its values."""
        return self._fake(x, values.shape[0], How(*how))

    def run_quantized(
        self,
        x: torch.Tensor,
        values: torch.Tensor,
        scales: torch.Tensor,
        offsets: torch.Tensor | None,
        scheme: str,
        bias: torch.Tensor | None,
        *how: Any,
    ) -> Any:
        """Multiply by a quantised weight."""
        refuse_quantized(self.name, "c10d" if is_c10d(how) else "native")
        tensors.check(x, self.name, "x")
        given, fixed = never_turned(*how)
        parts = values, scales, offsets, scheme
        by = quantized.packed(*parts, x.shape[-1], self.name, fixed=fixed)
        check_floats(x, self.name, "x")
        x = as_rows(x)
        engine = Native(context_for(given, self.name))
        if not self.pairs:
            return engine.multiply_by(self.name, x, by, bias, given.rows)
        rows = rows_that_all_have(self.name, x.shape[0], engine.place, given.rows)
        gathered = x.new_empty(rows, x.shape[1])
        return engine.multiply_by(self.name, x, by, bias, rows, gathered), gathered


OPERATORS = {called: Operator(called) for called in (*ROWS_OF, GATHERED)}
