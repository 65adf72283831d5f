"""Columns that ranks share: gathered on every rank, or cut out of what every rank has."""

import functools
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from plait import _native
from plait.torch import tensors
from plait.torch.context import communicator_of
from plait.torch.rows import as_rows, float_dtype, view

Shares = tuple[int, ...]  # of each rank


@functools.lru_cache(maxsize=64)
def balanced(size: int, world: int) -> Shares:
    """Return the shares of plait's own layers.

    >>> balanced(10, 4)
    (3, 3, 2, 2)
    """
    return tuple(_native.balanced_shard(size, rank, world).count for rank in range(world))


@functools.lru_cache(maxsize=64)
def chunked(size: int, world: int) -> Shares:
    """Return the shares of DTensors, which are torch.chunk's.

    >>> chunked(10, 4)
    (3, 3, 3, 1)
    """
    chunk = -(-size // world)
    return tuple(min(chunk, max(size - rank * chunk, 0)) for rank in range(world))


def gather_columns(
    x: torch.Tensor, shares: Shares, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Return the last dimension of all ranks together."""
    if not tensors.wants_gradient(x):
        return _gathered(x, shares, group)
    out: torch.Tensor = _Gather.apply(x, shares, group)  # type: ignore[no-untyped-call]
    return out


def split_columns(
    x: torch.Tensor, shares: Shares, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Return this rank's share of the last dimension of what every rank has alike."""
    out: torch.Tensor = _Split.apply(x, shares, group)  # type: ignore[no-untyped-call]
    return out


def _gathered(x: torch.Tensor, shares: Shares, group: dist.ProcessGroup | None) -> torch.Tensor:
    comm = communicator_of(group, "gather_columns")
    float_dtype(x, "gather_columns", "x")
    own = as_rows(x.reshape(-1, x.shape[-1]))
    # A view that a function of autograd returns can't be written to.
    out = x.new_empty(*x.shape[:-1], sum(shares))
    rows = out.view(own.shape[0], sum(shares))
    _native.all_gather_columns(view(own), view(rows), comm, counts=shares)
    return out


def _own(x: torch.Tensor, shares: Shares, group: dist.ProcessGroup | None) -> torch.Tensor:
    rank = communicator_of(group, "split_columns").rank
    return x.narrow(-1, sum(shares[:rank]), shares[rank]).contiguous()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shares: Shares, group: Any) -> torch.Tensor:
        ctx.how = shares, group
        return _gathered(x, shares, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # Every rank uses the whole result alike: its gradient is the same on all of them.
        return _own(grad, *ctx.how), None, None


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shares: Shares, group: Any) -> torch.Tensor:
        ctx.how = shares, group
        return _own(x, shares, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _gathered(grad, *ctx.how), None, None
