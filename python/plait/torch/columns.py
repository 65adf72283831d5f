"""Columns that ranks share: gathered on every rank, or cut out of what every rank has."""

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from plait import _native
from plait.torch import tensors
from plait.torch.context import communicator_of
from plait.torch.rows import float_dtype


def gather_columns(
    x: torch.Tensor, columns: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Return the last dimension of all ranks together, `columns` in all."""
    if not tensors.wants_gradient(x):
        return _gathered(x, columns, group)
    out: torch.Tensor = _Gather.apply(x, columns, group)  # type: ignore[no-untyped-call]
    return out


def split_columns(x: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Return this rank's share of the last dimension of what every rank has alike."""
    out: torch.Tensor = _Split.apply(x, group)  # type: ignore[no-untyped-call]
    return out


def _gathered(x: torch.Tensor, columns: int, group: dist.ProcessGroup | None) -> torch.Tensor:
    comm = communicator_of(group, "gather_columns")
    leading = x.shape[:-1]
    rows = leading.numel()
    # Ranks' shares lie one behind the other when columns are rows, and in a single row.
    turned = x.contiguous() if rows == 1 else x.reshape(-1, x.shape[-1]).t().contiguous()
    out = x.new_empty(columns, rows)
    dtype = float_dtype(x, "gather_columns", "x")
    counts = _counts(columns, rows, comm.world)
    _native._all_gather_at(
        turned.data_ptr(), turned.numel(), out.data_ptr(), out.numel(), dtype, comm, counts
    )
    return (out if rows == 1 else out.t().contiguous()).reshape(*leading, columns)


@functools.lru_cache(maxsize=64)
def _counts(columns: int, rows: int, world: int) -> list[int]:
    return [_native.balanced_shard(columns, rank, world).count * rows for rank in range(world)]


def _own(x: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    comm = communicator_of(group, "split_columns")
    shard = _native.balanced_shard(x.shape[-1], comm.rank, comm.world)
    return x.narrow(-1, shard.offset, shard.count).contiguous()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, columns: int, group: Any) -> torch.Tensor:
        ctx.group = group
        return _gathered(x, columns, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # Every rank uses the whole result alike: its gradient is the same on all of them.
        return _own(grad, ctx.group), None, None


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group, ctx.columns = group, x.shape[-1]
        return _own(x, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _gathered(grad, ctx.columns, ctx.group), None
