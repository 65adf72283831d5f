"""Calls with groups of other ranks or that have ended, by two threads, and by forked processes."""

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree
from torch import nn

import plait
import plait.torch as pt

WORLD = int(os.environ["WORLD_SIZE"])


def refused(call: Callable[[], object], operator: str, sentence: str) -> None:
    """Make a call that says in one sentence which call it is, and what is wrong with its group."""
    with pytest.raises(plait.Error, match=f"^{operator}: .*{sentence}") as caught:
        call()
    assert caught.value.code == plait.Code.invalid_argument
    assert caught.value.operator == operator


def test_a_group_of_other_ranks() -> None:
    group = dist.new_group([WORLD - 1])
    c10d = pt.Options(engine="c10d")
    x, w = torch.ones(2, 6), torch.ones(3, 6)
    calls: dict[str, Callable[[], torch.Tensor]] = {
        "row_parallel_linear": lambda: pt.row_parallel_linear(x, w, group=group, options=c10d),
        "matmul_all_reduce": lambda: pt.matmul_all_reduce(x, w, group=group),
        "column_parallel_linear": lambda: pt.column_parallel_linear(x, w, group=group),
        "ColumnParallelLinear.from_linear": lambda: pt.ColumnParallelLinear.from_linear(
            nn.Linear(6, 3), group=group
        )(x),
    }
    for name, call in calls.items():
        if dist.get_rank() == WORLD - 1:
            assert call().shape == (2, 3)
        else:
            refused(call, name, f"rank {dist.get_rank()} of {WORLD} is not a member of the group")


def test_what_is_no_group() -> None:
    x, w = torch.ones(2, 6), torch.ones(3, 6)
    sentence = "group is of type int, not a process group"
    anything: Any = 3
    refused(lambda: pt.matmul_all_reduce(x, w, group=anything), "matmul_all_reduce", sentence)
    refused(lambda: pt.row_parallel_linear(x, w, group=anything), "row_parallel_linear", sentence)
    refused(lambda: pt.communicator(anything), "communicator", sentence)
    unknown = "there is no process group 'elsewhere'"
    refused(lambda: pt.matmul_all_reduce(x, w, group="elsewhere"), "matmul_all_reduce", unknown)


def test_a_group_by_its_name_and_after_its_end() -> None:
    group = dist.new_group(backend="gloo")
    assert isinstance(group, dist.ProcessGroup)
    layer = pt.RowParallelLinear.from_linear(nn.Linear(6 * WORLD, 3), group=group)
    x, w = torch.ones(2, 6), torch.ones(3, 6)
    y = pt.matmul_all_reduce(x, w, group=group.group_name)
    assert y[0, 0] == 6 * WORLD
    layer(x)
    name = group.group_name
    dist.destroy_process_group(group)
    destroyed = f"the process group '{name}', of which this process was rank {dist.get_rank()}"
    refused(lambda: pt.matmul_all_reduce(x, w, group=group), "matmul_all_reduce", destroyed)
    refused(lambda: layer(x), "row_parallel_linear", destroyed)
    unknown = f"there is no process group '{name}'; it was destroyed"
    refused(lambda: pt.matmul_all_reduce(x, w, group=name), "matmul_all_reduce", unknown)


def test_threads_with_groups_of_their_own() -> None:
    made = [dist.new_group(backend="gloo") for _ in range(2)]
    done: list[int] = []

    def train(number: int) -> None:
        group = made[number]
        layer = pt.RowParallelLinear.from_linear(nn.Linear(8, 6), group=group)
        for _ in range(10):
            x = torch.randn(4, layer.weight.shape[1], requires_grad=True)
            layer(x).sum().backward()
        done.append(number)

    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [0, 1]


def pass_on(x: torch.Tensor) -> None:
    """Send to the next rank, and receive from the one before."""
    work = dist.isend(x, (dist.get_rank() + 1) % WORLD)
    dist.recv(torch.empty_like(x), (dist.get_rank() - 1) % WORLD)
    assert work is not None
    work.wait()


FORKED: dict[str, Callable[[torch.Tensor], object]] = {
    "operator": lambda x: pt.matmul_all_reduce(x, torch.ones(3, 6)),
    "layer": lambda x: pt.row_parallel_linear(x, torch.ones(3, 6)),
    "backend": dist.all_reduce,
    "send": pass_on,
    "new_group": lambda _: dist.new_group(),
}


def test_a_timeout_that_is_set_before_the_first_call() -> None:
    group = dist.new_group()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=0.2), group)
    if dist.get_rank() == 0:
        with pytest.raises(plait.Error, match=r"rank 0 has waited 0\.2 s for rank 1"):
            dist.all_reduce(torch.ones(1), group=group)
    dist.barrier()
    dist.destroy_process_group(group)


def test_two_threads_share_a_group() -> None:
    """They take turns, on every rank: the same calls, whichever thread makes them."""
    x, w = torch.ones(2, 6), torch.ones(3, 6)
    sums: list[float] = []

    def calls() -> None:
        for _ in range(20):
            sums.append(pt.matmul_all_reduce(x, w)[0, 0].item())

    threads = [threading.Thread(target=calls) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    agree(sums == [6.0 * WORLD] * 40, str(sums))


@pytest.mark.parametrize("call", FORKED.values(), ids=FORKED.keys())
def test_a_forked_worker_is_refused(call: Callable[[torch.Tensor], object]) -> None:
    x = torch.ones(2, 6)
    call(x)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"no refusal"
        try:
            call(x)
        except plait.Error as error:
            said = str(error).encode()
        finally:
            os.write(write, said)
            os._exit(0)
    os.waitpid(child, 0)
    assert b"was forked" in os.read(read, 1000)
