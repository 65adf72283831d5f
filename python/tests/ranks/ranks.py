"""Helpers of tests on several ranks: operands that are the same everywhere, and one verdict."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import plait.torch as pt
from plait import _native

OPERATORS = [
    pt.matmul_all_reduce,
    pt.matmul_reduce_scatter,
    pt.matmul_all_gather,
    pt.all_gather_matmul,
    pt.reduce_scatter_matmul,
    pt.all_reduce_matmul,
]


def both(sequence_parallel: bool = False, options: pt.Options | None = None) -> tuple[Any, Any]:
    """A small column layer and a row layer after it, the same on every rank."""
    torch.manual_seed(2)
    how: Any = {"sequence_parallel": sequence_parallel, "options": options or pt.Options()}
    up = pt.ColumnParallelLinear.from_linear(nn.Linear(6, 8), **how)
    down = pt.RowParallelLinear.from_linear(nn.Linear(8, 6), **how)
    return up, down


def agree(passed: bool, sentence: str) -> None:
    """Fail on all ranks where one fails, so that none is left waiting."""
    verdicts: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(verdicts, None if passed else sentence)
    failed = {rank: said for rank, said in enumerate(verdicts) if said is not None}
    assert not failed, failed


def shard(size: int) -> slice:
    """This rank's part of a dimension."""
    part = _native.balanced_shard(size, dist.get_rank(), dist.get_world_size())
    return slice(part.offset, part.offset + part.count)


def whole_and_parts(
    shape: tuple[int, ...], dtype: torch.dtype, seed: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Random values that all ranks have alike: one tensor, and one for each rank."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(shape, generator=generator).to(dtype)
    parts = [
        torch.randn(shape, generator=generator).to(dtype) for _ in range(dist.get_world_size())
    ]
    return whole, parts


UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def bound(sizes: torch.Tensor, terms: int, dtype: torch.dtype, roundings: int = 1) -> torch.Tensor:
    """How far a sum of `terms` products may be from the exact one, whose sizes add up to `sizes`.

    nu / (1 - nu) of the sum of sizes, with u of f32, and some roundings to the dtype.
    """
    nu = terms * UNIT[torch.float32]
    smallest = 2.0**-24 if dtype is torch.float16 else 0.0
    return (nu / (1 - nu) + roundings * UNIT[dtype] * (1 + nu)) * sizes + smallest


@dataclass
class Estimate:
    """A tensor in f64, and how far a computed one may be from it."""

    exact: torch.Tensor
    off: torch.Tensor | float = 0.0

    def __getitem__(self, place: Any) -> "Estimate":
        off = self.off[place] if isinstance(self.off, torch.Tensor) else self.off
        return Estimate(self.exact[place], off)

    def t(self) -> "Estimate":
        off = self.off.t() if isinstance(self.off, torch.Tensor) else self.off
        return Estimate(self.exact.t(), off)

    def why_not(self, found: torch.Tensor) -> str:
        """Return by how much a computed tensor is beyond the bound; empty: it is not."""
        assert found.shape == self.exact.shape, f"{found.shape} is not {self.exact.shape}"
        beyond = (found.double() - self.exact).abs() - self.off
        return f"beyond its bound by {beyond.max()}" if bool((beyond > 0).any()) else ""


def known(x: torch.Tensor) -> Estimate:
    return Estimate(x.double())


def product(
    a: Estimate,
    b: Estimate,
    dtype: torch.dtype,
    *,
    bias: Estimate | None = None,
    roundings: int = 1,
    wire: torch.dtype = torch.float32,
) -> Estimate:
    """Multiply: what the operands are off by is carried on, and the product adds its own.

    Each rank's partial sum is rounded to the wire, and the parts' sizes add up to those of the sum.
    """
    sizes = a.exact.abs() @ b.exact.abs()
    carried = a.off * torch.ones_like(a.exact) @ (b.exact.abs() + b.off)
    carried = carried + a.exact.abs() @ (b.off * torch.ones_like(b.exact))
    exact = a.exact @ b.exact
    if bias is not None:
        exact, sizes, carried = exact + bias.exact, sizes + bias.exact.abs(), carried + bias.off
    world = dist.get_world_size()
    own = bound(sizes + carried, a.exact.shape[-1] + 2 * world, dtype, roundings)
    if wire is not torch.float32:
        own = own + bound(sizes + carried, 0, wire) + world * 2.0**-24
    return Estimate(exact, carried + own)
