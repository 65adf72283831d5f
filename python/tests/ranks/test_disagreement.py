"""Ranks that pass different groups to a call: all of them hear of it, and which rank is missed."""

import threading
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import agree

import plait
import plait.torch as pt

# A call that no other rank makes ends by the group's own timeout.
SHORT = timedelta(seconds=6)

X, W = torch.ones(2, 6), torch.ones(3, 6)
CALLS: dict[str, Callable[[dist.ProcessGroup], object]] = {
    "operator": lambda group: pt.matmul_all_reduce(X, W, group=group),
    "layer": lambda group: pt.row_parallel_linear(X, W, group=group),
    "backend": lambda group: dist.all_reduce(X.clone(), group=group),
}


def test_ranks_that_pass_different_groups(gloo: dist.ProcessGroup) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    groups: dict[str, list[dist.ProcessGroup]] = {}
    for name in CALLS:
        groups[name] = []
        for _ in range(2):
            group = dist.new_group(backend="plait", timeout=SHORT)
            assert isinstance(group, dist.ProcessGroup)
            pt.communicator(group)  # all ranks make it
            groups[name].append(group)
    said: dict[str, plait.Error | None] = {}

    def call(name: str) -> None:
        try:
            CALLS[name](groups[name][min(rank, 1)])  # rank 0 passes another one than all others
            said[name] = None
        except plait.Error as error:
            said[name] = error

    # The three wait at the same time.
    threads = [threading.Thread(target=call, args=(name,)) for name in CALLS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in CALLS:
        error = said[name]
        agree(error is not None and error.code == plait.Code.timeout, f"{name}: {error!r}")
        missed = range(1, world) if rank == 0 else [0]
        agree(error is not None and error.culprit in missed, f"{name} blames another: {error}")
        agree("has made no call of this group" in str(error), f"{name}: {error}")
        agree(" timeout " in str(error), f"{name} lacks the word that programs look for: {error}")
    dist.barrier(gloo)
