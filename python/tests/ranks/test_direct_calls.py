"""Calls of a group's own methods, which torch.distributed's functions make with one tensor each.

The same call of a gloo group says what is right.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    BroadcastOptions,
    ReduceScatterOptions,
)
from torch.distributed import ReduceOp

import plait

Group: Any = dist.ProcessGroup  # its methods take more forms than their types say


def made(n: int = 2, factor: float = 1.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (factor * (dist.get_rank() + 1) + torch.arange(n)).to(dtype)


def every() -> list[torch.Tensor]:
    return [made(factor=rank) for rank in range(dist.get_world_size())]


def root(rank: int, tensor: int = 0) -> BroadcastOptions:
    options = BroadcastOptions()
    options.rootRank, options.rootTensor = rank, tensor
    return options


# Calls of a group with two tensors that they may write to.
CALLS: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], Any]] = {
    "allreduce, one": lambda group, a, b: group.allreduce([a], AllreduceOptions()),
    "allreduce, several": lambda group, a, b: group.allreduce([a, b], AllreduceOptions()),
    "allreduce, no options": lambda group, a, b: group.allreduce([a]),
    "allreduce, an operation": lambda group, a, b: group.allreduce(a, ReduceOp.MAX),
    "allreduce, no list": lambda group, a, b: group.allreduce(a, AllreduceOptions()),
    "allreduce, none": lambda group, a, b: group.allreduce([], AllreduceOptions()),
    "allreduce, sizes": lambda group, a, b: group.allreduce([a, b[:1]], AllreduceOptions()),
    "allreduce, dtypes": lambda group, a, b: group.allreduce([a, b.double()], AllreduceOptions()),
    "coalesced": lambda group, a, b: group.allreduce_coalesced([a, b]),
    "coalesced, options": lambda group, a, b: group.allreduce_coalesced(
        [a, b], AllreduceCoalescedOptions()
    ),
    "coalesced, none": lambda group, a, b: group.allreduce_coalesced([]),
    "broadcast, one": lambda group, a, b: group.broadcast([a], root(1)),
    "broadcast, several": lambda group, a, b: group.broadcast([a, b], root(1)),
    "broadcast, root tensor": lambda group, a, b: group.broadcast([a, b], root(1, 1)),
    "broadcast, wrong root tensor": lambda group, a, b: group.broadcast([a], root(1, 1)),
    "broadcast, wrong root": lambda group, a, b: group.broadcast([a], root(-1)),
    "broadcast, no list": lambda group, a, b: group.broadcast(a, 1),
    "broadcast, none": lambda group, a, b: group.broadcast([], root(0)),
    "reduce_scatter": lambda group, a, b: group.reduce_scatter(
        [a], [every()], ReduceScatterOptions()
    ),
    "reduce_scatter, several": lambda group, a, b: group.reduce_scatter(
        [a, b], [every(), every()], ReduceScatterOptions()
    ),
    "reduce_scatter, none": lambda group, a, b: group.reduce_scatter(
        [], [], ReduceScatterOptions()
    ),
    "reduce_scatter_single": lambda group, a, b: group.reduce_scatter_single(a, torch.cat(every())),
    "reduce_scatter_single_coalesced": lambda group, a, b: group.reduce_scatter_single_coalesced(
        [a, b], [torch.cat(every()), torch.cat(every())]
    ),
    "reduce_scatter_single_coalesced, none": lambda group, a, b: (
        group.reduce_scatter_single_coalesced([], [])
    ),
    "allgather, one": lambda group, a, b: group.allgather([every()], [a], AllgatherOptions()),
    "allgather, none": lambda group, a, b: group.allgather([], [], AllgatherOptions()),
    "allgather_coalesced, none": lambda group, a, b: group.allgather_coalesced([], []),
    "all_gather_single_coalesced, none": lambda group, a, b: group.all_gather_single_coalesced(
        [], []
    ),
    "alltoall, none": lambda group, a, b: group.alltoall([], []),
    "timeout": lambda group, a, b: group._get_backend(torch.device("cpu")).options._timeout,
    "monitored barrier": lambda group, a, b: group.monitored_barrier(timedelta(seconds=90)),
}


def outcome(
    group: Any, call: Callable[[Any, torch.Tensor, torch.Tensor], Any], dtype: torch.dtype
) -> tuple[str, list[float], list[float]]:
    """Return what kind of end a call had, and what is in its tensors after it."""
    a, b = made(dtype=dtype), made(factor=10, dtype=dtype)
    try:
        result = call(group, a, b)
        if isinstance(result, dist.Work):
            result.wait()
        end = "done" if isinstance(result, dist.Work) else repr(result)
    except (RuntimeError, TypeError) as error:
        end = "refused" if isinstance(error, RuntimeError) else "TypeError"
    return end, a.tolist(), b.tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_what_gloo_does(gloo: Any, call: Any, dtype: torch.dtype) -> None:
    ours, theirs = outcome(dist.group.WORLD, call, dtype), outcome(gloo, call, dtype)
    agree(ours == theirs, f"{ours} is not {theirs}")
    dist.barrier()  # the group is of use after it


def test_allgather_of_several(gloo: Any) -> None:
    found = []
    groups: list[Any] = [dist.group.WORLD, gloo]
    for group in groups:
        received: Any = [[made() for _ in range(2 * dist.get_world_size())] for _ in range(2)]
        group.allgather(received, [made(), made(factor=10)], AllgatherOptions()).wait()
        found.append([[one.tolist() for one in several] for several in received])
    assert found[0] == found[1]


def test_a_mean_of_several_is_refused() -> None:
    """gloo divides one of them by the number of ranks, and leaves the others sums."""
    group: Any = dist.group.WORLD
    options: Any = AllreduceOptions()
    options.reduceOp = ReduceOp.AVG
    a, b = made(), made()
    with pytest.raises(plait.Error, match="AVG takes one tensor, not 2"):
        group.allreduce([a, b], options)
    assert torch.equal(a, made())


def test_the_groups_options() -> None:
    group: Any = dist.new_group(timeout=timedelta(seconds=77), backend="plait")
    assert group.options._timeout == timedelta(seconds=77)


def test_a_monitored_barrier_names_all_ranks_that_do_not_come() -> None:
    group: Any = dist.new_group(backend="plait")
    missing = ", ".join(map(str, range(1, dist.get_world_size())))
    if dist.get_rank() == 0:
        with pytest.raises(RuntimeError, match=f"Ranks? {missing} failed to pass"):
            group.monitored_barrier(timedelta(seconds=0.2), wait_all_ranks=True)
    dist.barrier()
