"""Operators of torch that gradients alone call: importing this module registers them.

The gradient of a weight is this rank's own product; what gathers and adds up rows is collective.
"""

import threading
from typing import Any

import torch

from plait import _native
from plait.torch.by_products import products_for
from plait.torch.how import C10D, How, context_for, size_of_group
from plait.torch.library import define, own_rows
from plait.torch.rows import as_rows, check_matrix, float_dtype, view

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

# Collectives of rows, which backwards need. `schedule` may be library.C10D.


def _counts(rows: int, columns: int, world: int) -> list[int]:
    """Count the elements of each rank's rows."""
    return [_native.balanced_shard(rows, rank, world).count * columns for rank in range(world)]


def _all_gather_rows_fake(
    x: torch.Tensor, group: str, rows: int, schedule: str = ""
) -> torch.Tensor:
    return x.new_empty(rows, x.shape[1])


def _all_gather_rows_by_products(
    x: torch.Tensor, group: str, rows: int, schedule: str = ""
) -> torch.Tensor:
    return products_for(How(group, schedule), "all_gather", x).gathering(x.detach(), rows).wait()


def _all_gather_rows(x: torch.Tensor, group: str, rows: int, schedule: str = "") -> torch.Tensor:
    if schedule == C10D:
        return _all_gather_rows_by_products(x, group, rows, schedule)
    x, out = x.contiguous(), _all_gather_rows_fake(x, group, rows)
    comm = context_for(How(group), "all_gather").comm
    dtype = float_dtype(x, "all_gather", "x")
    counts = _counts(rows, x.shape[1], comm.world)
    _native._all_gather_at(
        x.data_ptr(), x.numel(), out.data_ptr(), out.numel(), dtype, comm, counts
    )
    return out


def _reduce_scatter_rows_fake(x: torch.Tensor, group: str, schedule: str = "") -> torch.Tensor:
    return x.new_empty(
        own_rows(x.shape[0], lambda: size_of_group(group, "reduce_scatter"), -1), x.shape[1]
    )


def _reduce_scatter_rows_by_products(
    x: torch.Tensor, group: str, schedule: str = ""
) -> torch.Tensor:
    return products_for(How(group, schedule), "reduce_scatter", x).own_sum_of(x.detach())


def _reduce_scatter_rows(x: torch.Tensor, group: str, schedule: str = "") -> torch.Tensor:
    if schedule == C10D:
        return _reduce_scatter_rows_by_products(x, group, schedule)
    x, out = x.contiguous(), _reduce_scatter_rows_fake(x, group)
    comm = context_for(How(group), "reduce_scatter").comm
    dtype = float_dtype(x, "reduce_scatter", "x")
    counts = _counts(x.shape[0], x.shape[1], comm.world)
    _native._reduce_scatter_at(
        x.data_ptr(), x.numel(), out.data_ptr(), out.numel(), dtype, comm, counts
    )
    return out


def _all_reduce_rows_fake(x: torch.Tensor, group: str, schedule: str = "") -> torch.Tensor:
    return x.new_empty(x.shape)


def _all_reduce_rows_by_products(x: torch.Tensor, group: str, schedule: str = "") -> torch.Tensor:
    return products_for(How(group, schedule), "all_reduce", x).sum_of(x.detach())


def _all_reduce_rows(x: torch.Tensor, group: str, schedule: str = "") -> torch.Tensor:
    if schedule == C10D:
        return _all_reduce_rows_by_products(x, group, schedule)
    x, out = x.contiguous(), _all_reduce_rows_fake(x, group)
    dtype = float_dtype(x, "all_reduce", "x")
    comm = context_for(How(group), "all_reduce").comm
    _native._all_reduce_at(x.data_ptr(), out.data_ptr(), x.numel(), dtype, comm)
    return out


define(
    'all_gather_rows(Tensor x, str group, int rows, str schedule="") -> Tensor',
    _all_gather_rows,
    _all_gather_rows_fake,
    _all_gather_rows_by_products,
)
define(
    'reduce_scatter_rows(Tensor x, str group, str schedule="") -> Tensor',
    _reduce_scatter_rows,
    _reduce_scatter_rows_fake,
    _reduce_scatter_rows_by_products,
)
define(
    'all_reduce_rows(Tensor x, str group, str schedule="") -> Tensor',
    _all_reduce_rows,
    _all_reduce_rows_fake,
    _all_reduce_rows_by_products,
)
