"""Communicators of process groups, whatever their backend."""

import gc
import multiprocessing
import weakref

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import plait
import plait.torch
from plait.torch import groups, tensors


def add_up(comm: plait.Communicator) -> float:
    x = torch.tensor([comm.rank + 1.0])
    plait.all_reduce(x, comm)
    return x.item()


def test_of_the_default_group(world: int) -> None:
    comm = plait.torch.communicator()
    assert (comm.rank, comm.world, comm.transport) == (dist.get_rank(), world, "shm")
    assert comm is plait.torch.communicator(dist.group.WORLD)
    assert add_up(comm) == world * (world + 1) / 2


def test_the_backends_own_is_shared(world: int) -> None:
    dist.barrier()
    assert dist.group.WORLD is not None
    assert plait.torch.communicator() is dist.group.WORLD.communicator  # type: ignore[attr-defined]


def test_of_a_gloo_group(gloo: dist.ProcessGroup, world: int) -> None:
    comm = plait.torch.communicator(gloo)
    assert comm is plait.torch.communicator(gloo)
    assert comm is not plait.torch.communicator()
    assert add_up(comm) == world * (world + 1) / 2


@pytest.mark.parametrize("backend", ["gloo", "plait"])
def test_of_sub_groups(world: int, backend: str) -> None:
    ranks = list(range(1, world))
    group = dist.new_group(ranks, backend=backend)
    if dist.get_rank() == 0:
        with pytest.raises(plait.Error, match="not a member"):
            plait.torch.communicator(group)
    else:
        comm = plait.torch.communicator(group)
        assert (comm.rank, comm.world) == (dist.get_rank() - 1, world - 1)
        assert add_up(comm) == (world - 1) * world / 2


@pytest.mark.parametrize("backend", ["gloo", "plait"])
def test_forgotten_when_the_group_is_destroyed(backend: str) -> None:
    group = dist.new_group(backend=backend)
    assert isinstance(group, dist.ProcessGroup)
    left = weakref.ref(plait.torch.communicator(group))
    gc.collect()  # groups of tests before this one
    before = len(groups._communicators)
    dist.destroy_process_group(group)
    with pytest.raises(plait.Error, match="was destroyed"):
        plait.torch.communicator(group)
    del group
    gc.collect()
    assert left() is None
    assert len(groups._communicators) == before - 1


def in_a_fork(comm: plait.Communicator, answers: "multiprocessing.SimpleQueue[str]") -> None:
    try:
        plait.all_reduce(np.ones(1, dtype=np.float32), comm)
        answers.put("no refusal")
    except plait.Error as error:
        answers.put(f"{error.code.name}: {error}")


@pytest.mark.parametrize("backend", ["gloo", "plait"])
@pytest.mark.parametrize("held", [True, False])
def test_reports_have_calls_of_destroyed_groups(world: int, held: bool, backend: str) -> None:
    """A script destroys its groups last, and asks what was called after that."""
    plait.torch.forget_report()
    group = dist.new_group(list(range(world)), backend=backend)
    assert isinstance(group, dist.ProcessGroup)
    plait.torch.matmul_all_reduce(torch.ones(3, 8), torch.ones(5, 8), group=group)
    before = plait.torch.report().rows
    assert [(row.m, row.n, row.k) for row in before] == [(3, 5, 8 * world)]
    dist.destroy_process_group(group)
    holder = [group] if held else []  # as a module may
    del group
    gc.collect()
    assert plait.torch.report().rows == before
    holder.clear()
    gc.collect()
    assert plait.torch.report().rows == before
    plait.torch.forget_report()
    assert plait.torch.report().rows == ()


def test_a_forked_worker_is_refused() -> None:
    comm = plait.torch.communicator()
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    worker = context.Process(target=in_a_fork, args=(comm, answers))
    worker.start()
    assert answers.get().startswith("invalid_argument")
    worker.join(60)
    assert worker.exitcode == 0
    dist.barrier()  # the rank itself goes on


def test_distributed_tensors(world: int) -> None:
    """DTensor's own collectives go over the group; plait takes their local part."""
    mesh = init_device_mesh("cpu", (world,))
    sharded = distribute_tensor(torch.arange(8.0).view(4, 2), mesh, [Shard(0)])
    assert torch.equal(sharded.full_tensor(), torch.arange(8.0).view(4, 2))
    assert tensors.refusal(sharded) == (
        "is a DTensor; plait takes plain tensors, such as its local part"
    )
    assert tensors.refusal(sharded.to_local()) is None
