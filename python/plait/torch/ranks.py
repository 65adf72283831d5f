"""The ranks that share a layer whose product is torch's, and the collectives among them."""

from typing import Any

import torch
import torch.distributed as dist

from plait import _native
from plait.torch.context import group_of

Work = dist.Work | None  # None: it is done

# The names that torch had for them before 2.13.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Ranks:
    """A process group, or this process alone: `group` is None where nothing is exchanged."""

    def __init__(self, group: dist.ProcessGroup | None, operator: str) -> None:
        group = group_of(group, operator)
        self.group = group
        self.rank = 0 if group is None else group.rank()
        self.world = 1 if group is None else group.size()

    def shard(self, rows: int, rank: int | None = None) -> slice:
        """Return which rows are a rank's: the first ranks have one more where it is uneven."""
        part = _native.balanced_shard(rows, self.rank if rank is None else rank, self.world)
        return slice(part.offset, part.offset + part.count)

    def most(self, rows: int) -> int:
        """Count the rows of the rank that has most of them."""
        return -(-rows // self.world)

    def all_reduce(self, x: torch.Tensor) -> Work:
        """Start to add up over the ranks, in place."""
        if self.group is None or x.numel() == 0:
            return None
        work: Work = dist.all_reduce(x, group=self.group, async_op=True)
        return work

    def all_gather(self, out: torch.Tensor, own: torch.Tensor) -> Work:
        """Start to fill `out` [world, rows, columns] with the rows of all ranks."""
        if out.numel() == 0:
            return None
        if self.group is None:
            out[0].copy_(own)
            return None
        whole = out.view(-1, out.shape[-1])
        work: Work = _all_gather(whole, own, group=self.group, async_op=True)
        return work

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> Work:
        """Start to add `x` [world * rows, columns] up; this rank's rows go to `out`."""
        if x.numel() == 0:
            return None
        if self.group is None:
            out.copy_(x)
            return None
        work: Work = _reduce_scatter(out, x, group=self.group, async_op=True)
        return work

    def padded(self, x: torch.Tensor) -> torch.Tensor:
        """Return the rows with every rank's block as long as the longest, filled up with zeros."""
        rows, most = x.shape[0], self.most(x.shape[0])
        if rows == most * self.world:
            return x
        out = x.new_zeros(self.world, most, x.shape[1])
        for rank in range(self.world):
            own = self.shard(rows, rank)
            out[rank, : own.stop - own.start] = x[own]
        return out.view(-1, x.shape[1])

    def unpadded(self, x: torch.Tensor, rows: int) -> torch.Tensor:
        """Return `rows` rows out of blocks [world, rows of the longest, columns]."""
        if rows == x.shape[0] * x.shape[1]:
            return x.view(rows, x.shape[2])
        shards = [self.shard(rows, rank) for rank in range(self.world)]
        return torch.cat([x[rank, : own.stop - own.start] for rank, own in enumerate(shards)])
