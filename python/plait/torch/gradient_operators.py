"""Operators of torch that gradients alone call: importing this module registers them.

The gradient of a weight is this rank's own product; what gathers and adds up rows is collective.
"""

import functools
import threading
from typing import Any

import torch

from plait import _native
from plait.torch.definitions import define
from plait.torch.engines.choice import choose_for
from plait.torch.engines.engine import Engine
from plait.torch.flops import register_weight_gradient
from plait.torch.how import C10D, How, size_of_group
from plait.torch.rows import as_rows, check_matrix, float_dtype, own_rows, view

# The weight's gradient: grad_outᵀ·x, of this rank alone.
_gemms = threading.local()  # a Gemm serves one thread


def _weight_gradient_run(grad_out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    check_matrix(grad_out, "weight_gradient", "grad_out")
    check_matrix(x, "weight_gradient", "x")
    grad_out, x = as_rows(grad_out), as_rows(x)
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


def _weight_gradient_on_gpu(grad_out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.mm(grad_out.t(), x)  # for which plait has no kernel


def _weight_gradient_fake(grad_out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(grad_out.shape[1], x.shape[1])


define(
    "weight_gradient(Tensor grad_out, Tensor x) -> Tensor",
    _weight_gradient_run,
    _weight_gradient_fake,
    _weight_gradient_on_gpu,
)

register_weight_gradient()

# Collectives of rows, which backwards need. `schedule` may be how.C10D.


def _engine(x: torch.Tensor, group: str, schedule: str, operator: str) -> Engine:
    if schedule != C10D and not x.is_cuda:
        schedule = ""  # one context serves the native collectives, which have no schedule
    return choose_for(How(group, schedule), operator, x)


def _all_gather_rows(x: torch.Tensor, group: str, rows: int, schedule: str = "") -> torch.Tensor:
    return _engine(x, group, schedule, "all_gather").gathered(x, rows)


def _all_gather_rows_fake(
    x: torch.Tensor, group: str, rows: int, schedule: str = ""
) -> torch.Tensor:
    return x.new_empty(rows, x.shape[1])


def _reduce_scatter_rows(x: torch.Tensor, group: str, schedule: str = "") -> torch.Tensor:
    return _engine(x, group, schedule, "reduce_scatter").own_sum_of(x)


def _reduce_scatter_rows_fake(x: torch.Tensor, group: str, schedule: str = "") -> torch.Tensor:
    place = functools.partial(size_of_group, group, "reduce_scatter")
    return x.new_empty(own_rows(x.shape[0], place, -1), x.shape[1])


def _all_reduce_rows(x: torch.Tensor, group: str, schedule: str = "") -> torch.Tensor:
    return _engine(x, group, schedule, "all_reduce").sum_of(x)


def _all_reduce_rows_fake(x: torch.Tensor, group: str, schedule: str = "") -> torch.Tensor:
    return x.new_empty(x.shape)


for _schema, _kernel, _fake in (
    (
        'all_gather_rows(Tensor x, str group, int rows, str schedule="") -> Tensor',
        _all_gather_rows,
        _all_gather_rows_fake,
    ),
    (
        'reduce_scatter_rows(Tensor x, str group, str schedule="") -> Tensor',
        _reduce_scatter_rows,
        _reduce_scatter_rows_fake,
    ),
    (
        'all_reduce_rows(Tensor x, str group, str schedule="") -> Tensor',
        _all_reduce_rows,
        _all_reduce_rows_fake,
    ),
):
    define(_schema, _kernel, _fake, _kernel)
