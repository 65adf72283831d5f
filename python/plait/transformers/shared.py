"""Rows that ranks share: cut and gathered, gradients summed, and column layers joined into one."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import once_differentiable
from torch.distributed.tensor import DTensor

import plait.torch
from plait import _native
from plait.torch.weights import Owner
from plait.transformers.styles import Site, local

_ops = torch.ops.plait


def own_rows(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return this rank's rows of a matrix that every rank has alike."""
    out: torch.Tensor = _Own.apply(x, group)  # type: ignore[no-untyped-call]
    return out


def all_rows(x: torch.Tensor, rows: int, group: dist.ProcessGroup) -> torch.Tensor:
    """Return the rows of all ranks, `rows` in all."""
    out: torch.Tensor = _All.apply(x, rows, group)  # type: ignore[no-untyped-call]
    return out


def with_summed_gradient(parameter: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Return a parameter that each rank uses for its own rows: gradients are added up."""
    out: torch.Tensor = _Summed.apply(parameter, group)  # type: ignore[no-untyped-call]
    return out


def _cut(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    shard = _native.balanced_shard(x.shape[0], group.rank(), group.size())
    return x[shard.offset : shard.offset + shard.count].clone()


class _Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group, ctx.rows = group, x.shape[0]
        return _cut(x, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _ops.all_gather_rows(grad, ctx.group.group_name, ctx.rows), None


class _All(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, rows: int, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        out: torch.Tensor = _ops.all_gather_rows(x, group.group_name, rows)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # Every rank uses the whole result alike: its gradient is the same on all of them.
        return _cut(grad, ctx.group), None, None


class _Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return parameter.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        summed = _ops.all_reduce_rows(grad.reshape(1, -1), ctx.group.group_name)
        return summed.reshape(grad.shape), None


class JoinedColumns:
    """Column layers of one input, multiplied as one: the input is gathered once, behind them all.

    Their weights are moved into one piece of memory, of which each parameter keeps its part.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self.layers = layers
        self.owner = Owner()
        self.whole: torch.Tensor | None = None

    def multiply(self, x: torch.Tensor, site: Site, rows: int | None) -> Sequence[torch.Tensor]:
        """Return each layer's product; `rows`: of all ranks, where they share the input's."""
        parts: Any = [one.weight for one in self.layers]
        self.owner.see_changes(*parts)
        weight = self._weight(parts)
        sizes = [one._local_tensor.shape[0] for one in parts]
        if torch.is_grad_enabled():
            weight = _Join.apply(weight, *map(local, parts))  # type: ignore[no-untyped-call]
        biases = [local(one.bias) for one in self.layers if one.bias is not None]
        out = plait.torch.column_parallel_linear(
            x,
            weight,
            torch.cat(biases) if biases else None,
            group=site.group,
            sequence_parallel=rows is not None,
            rows=rows,
            options=site.service.options,
            layer=self.owner,
        )
        products: Sequence[torch.Tensor] = out.split(sizes, -1)
        return products

    @torch.inference_mode(False)
    @torch.no_grad()
    def _weight(self, parts: Sequence[DTensor]) -> torch.Tensor:
        """Return all weights as one, and move them unless they are where they were moved to."""
        whole, at = self.whole, None if self.whole is None else self.whole.data_ptr()
        for part in parts:
            mine = part._local_tensor
            if whole is None or mine.data_ptr() != at or mine.dtype is not whole.dtype:
                break
            at = mine.data_ptr() + mine.nbytes
        else:
            assert whole is not None
            return whole
        whole = self.whole = torch.cat([part._local_tensor for part in parts])
        places = whole.split([part._local_tensor.shape[0] for part in parts])
        for part, place in zip(parts, places, strict=True):
            part._local_tensor = place
        return whole


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
        ctx.sizes = [part.shape[0] for part in parts]
        return whole.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, *grad.split(ctx.sizes)
