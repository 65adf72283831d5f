"""Works of collectives that gloo serves for the backend "plait": gloo goes on after the call."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree
from torch.distributed import ReduceOp


def summed(group: Any) -> tuple[torch.Tensor, float]:
    x = torch.full((200_000,), dist.get_rank() + 1)
    dist.all_reduce(x, group=group, async_op=True)
    world = dist.get_world_size()
    return x, world * (world + 1) / 2


def largest(group: Any) -> tuple[torch.Tensor, float]:
    x = torch.full((200_000,), dist.get_rank() + 1.0)
    dist.all_reduce(x, ReduceOp.MAX, group, async_op=True)
    return x, dist.get_world_size()


def gathered(group: Any) -> tuple[torch.Tensor, float]:
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [torch.zeros(50_000) for _ in range(world)] if rank == 0 else None
    dist.gather(torch.ones(50_000), parts, 0, group, async_op=True)
    return torch.ones(1) if parts is None else parts[-1], 1


@pytest.mark.parametrize("begin", [summed, largest, gathered], ids=lambda each: each.__name__)
def test_a_barrier_waits_for_what_this_rank_has_begun(
    begin: Callable[[Any], tuple[torch.Tensor, float]],
) -> None:
    for _ in range(10):
        begun = [begin(dist.group.WORLD) for _ in range(4)]
        dist.barrier()
        stale = sum(not bool((x == expected).all()) for x, expected in begun)
        agree(stale == 0, f"{stale} of {len(begun)} tensors are not written after the barrier")


def test_a_barrier_does_not_wait_for_a_message() -> None:
    """Its sender may be about to send it after the barrier."""
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.zeros(3)
    awaited = dist.irecv(x, (rank - 1) % world)
    dist.all_reduce(torch.ones(3, dtype=torch.int64))
    dist.barrier()
    dist.send(torch.full((3,), rank + 1.0), (rank + 1) % world)
    assert awaited is not None
    awaited.wait()
    assert x.tolist() == [(rank - 1) % world + 1] * 3
