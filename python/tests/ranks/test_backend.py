"""Every collective of the backend "plait", beside gloo's of the same tensors."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._C._distributed_c10d import AllreduceOptions
from torch.distributed import ReduceOp
from torch.distributed.distributed_c10d import _coalescing_manager

import plait
from plait import _native

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")

FLOATS = [torch.float32, torch.bfloat16, torch.float16]
OTHERS = [torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64]
ALL = [*FLOATS, *OTHERS, torch.bool]


def values(n: int, dtype: torch.dtype, rank: int, shape: tuple[int, ...] | None = None) -> Any:
    """Small whole numbers, whose sums any dtype holds."""
    numbers = ((torch.arange(n) * 5 + rank * 3) % 7).to(dtype)
    return numbers if shape is None else numbers.view(shape)


Group = dist.ProcessGroup
Collective = Callable[[Group, torch.dtype, bool], list[torch.Tensor]]


def finish(work: Any, asynchronous: bool) -> None:
    assert (work is not None) == asynchronous
    if asynchronous:
        work.wait()


def all_reduce(group: Group, dtype: torch.dtype, later: bool, op: Any = ReduceOp.SUM) -> Any:
    x = values(1000, dtype, dist.get_rank(group), (10, 100))
    finish(dist.all_reduce(x, op, group, async_op=later), later)
    return [x]


def all_reduce_coalesced(group: Group, dtype: torch.dtype, later: bool) -> Any:
    several = [values(n, dtype, dist.get_rank(group)) for n in (7, 1, 64)]
    with _coalescing_manager(group, async_ops=later) as manager:
        for each in several:
            dist.all_reduce(each, group=group)
    if later:
        manager.wait()
    return several


def reduce_scatter(group: Group, dtype: torch.dtype, later: bool, op: Any = ReduceOp.SUM) -> Any:
    parts = [values(30, dtype, dist.get_rank(group) + i, (3, 10)) for i in range(group.size())]
    out = torch.empty(3, 10, dtype=dtype)
    finish(dist.reduce_scatter(out, parts, op, group, async_op=later), later)
    return [out]


def reduce_scatter_single(
    group: Group, dtype: torch.dtype, later: bool, op: Any = ReduceOp.SUM
) -> Any:
    whole = values(30 * group.size(), dtype, dist.get_rank(group), (-1, 10))
    out = torch.empty(3, 10, dtype=dtype)
    finish(dist.reduce_scatter_tensor(out, whole, op, group, async_op=later), later)
    return [out]


def all_gather(group: Group, dtype: torch.dtype, later: bool) -> Any:
    parts = [torch.empty(3, 5, dtype=dtype) for _ in range(group.size())]
    mine = values(15, dtype, dist.get_rank(group), (3, 5))
    finish(dist.all_gather(parts, mine, group, async_op=later), later)
    return parts


def all_gather_single(group: Group, dtype: torch.dtype, later: bool) -> Any:
    whole = torch.empty(3 * group.size(), 5, dtype=dtype)
    mine = values(15, dtype, dist.get_rank(group), (3, 5))
    finish(dist.all_gather_into_tensor(whole, mine, group, async_op=later), later)
    return [whole]


def all_gather_coalesced(group: Group, dtype: torch.dtype, later: bool) -> Any:
    mine = [values(n, dtype, dist.get_rank(group)) for n in (4, 9)]
    wholes = [torch.empty(n * group.size(), dtype=dtype) for n in (4, 9)]
    with _coalescing_manager(group, async_ops=later) as manager:
        for whole, each in zip(wholes, mine, strict=True):
            dist.all_gather_into_tensor(whole, each, group)
    if later:
        manager.wait()
    return wholes


def broadcast(group: Group, dtype: torch.dtype, later: bool) -> Any:
    x = values(100, dtype, dist.get_rank(group))
    finish(dist.broadcast(x, group=group, group_src=group.size() - 1, async_op=later), later)
    return [x]


def all_to_all_single(group: Group, dtype: torch.dtype, later: bool) -> Any:
    x = values(6 * group.size(), dtype, dist.get_rank(group), (-1, 3))
    out = torch.empty_like(x)
    finish(dist.all_to_all_single(out, x, group=group, async_op=later), later)
    return [out]


def uneven_all_to_all_single(group: Group, dtype: torch.dtype, later: bool) -> Any:
    rank, size = dist.get_rank(group), group.size()
    sent = [rank + to for to in range(size)]
    received = [source + rank for source in range(size)]
    x = values(3 * sum(sent), dtype, rank, (-1, 3))
    out = torch.empty(sum(received), 3, dtype=dtype)
    finish(dist.all_to_all_single(out, x, received, sent, group, async_op=later), later)
    return [out]


def barrier(group: Group, dtype: torch.dtype, later: bool) -> Any:
    finish(dist.barrier(group, async_op=later), later)
    return []


SUMS: list[Any] = [all_reduce, reduce_scatter, reduce_scatter_single]
MOVES: list[Collective] = [
    all_gather, all_gather_single, all_gather_coalesced, broadcast, all_to_all_single,
    uneven_all_to_all_single, barrier,
]  # fmt: skip


@pytest.fixture(scope="session")
def sub(world: int, gloo: Group) -> tuple[Group, Group]:
    """With four ranks, each half by itself."""
    halves = [[0, 1], [2, 3]] if world == 4 else [list(range(world))]
    found = []
    for backend in ("plait", "gloo"):
        groups = [dist.new_group(half, backend=backend) for half in halves]
        found.append(next(group for group in groups if isinstance(group, Group)))
    return found[0], found[1]


@pytest.fixture(params=["whole", "sub"])
def groups(request: pytest.FixtureRequest, gloo: Group, sub: tuple[Group, Group]) -> Any:
    assert dist.group.WORLD is not None
    return (dist.group.WORLD, gloo) if request.param == "whole" else sub


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("later", [False, True], ids=["now", "async"])
@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("collective", MOVES, ids=lambda each: each.__name__)
def test_moves(groups: Any, collective: Collective, dtype: torch.dtype, later: bool) -> None:
    ours, theirs = groups
    assert same(collective(ours, dtype, later), collective(theirs, dtype, later))


@pytest.mark.parametrize("later", [False, True], ids=["now", "async"])
@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS], ids=str)
@pytest.mark.parametrize("op", ["SUM", "MAX", "MIN", "PRODUCT", "BAND"])
@pytest.mark.parametrize("collective", SUMS, ids=lambda each: each.__name__)
def test_sums(groups: Any, collective: Any, op: str, dtype: torch.dtype, later: bool) -> None:
    ours, theirs = groups
    operation = getattr(ReduceOp, op)
    if op == "BAND" and dtype.is_floating_point:
        with pytest.raises(RuntimeError):
            collective(ours, dtype, later, operation)
        return
    expected = collective(theirs, dtype, later, operation)
    assert same(collective(ours, dtype, later, operation), expected)


@pytest.mark.parametrize("later", [False, True], ids=["now", "async"])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32], ids=str)
def test_coalesced_sums(groups: Any, dtype: torch.dtype, later: bool) -> None:
    ours, theirs = groups
    expected = all_reduce_coalesced(theirs, dtype, later)
    assert same(all_reduce_coalesced(ours, dtype, later), expected)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("collective", SUMS, ids=lambda each: each.__name__)
def test_means(groups: Any, collective: Any, dtype: torch.dtype) -> None:
    # gloo has none: sums of small whole numbers are exact, and so are halves and quarters.
    ours, theirs = groups
    expected = collective(theirs, dtype, False)
    for each in expected:
        each.div_(theirs.size())
    assert same(collective(ours, dtype, False, ReduceOp.AVG), expected)


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
def test_served_by_plait(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Not only right: the native call is made."""
    calls = []
    real = getattr(_native, f"_{name}_at")

    def counted(*arguments: Any) -> None:
        calls.append(arguments)
        real(*arguments)

    monkeypatch.setattr(_native, f"_{name}_at", counted)
    assert dist.group.WORLD is not None
    globals()[name](dist.group.WORLD, torch.float32, False)
    assert len(calls) == 1


def test_asynchronous_ones_are_done_when_they_return() -> None:
    x = torch.ones(3)
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    assert work.is_completed()
    assert x.tolist() == [dist.get_world_size()] * 3
    assert torch.equal(work.get_future().wait()[0], x)
    assert torch.equal(work.result()[0], x)
    for each in (work, dist.barrier(async_op=True)):
        assert each is not None
        assert each.wait(timedelta(seconds=1))
        assert each.is_success()
        assert each.exception() is None


def test_what_is_not_contiguous_on_one_rank_only() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.full((4, 6), rank + 1.0)
    if rank == 0:
        x = torch.full((6, 4), 1.0).t()
    dist.all_reduce(x)
    assert x.flatten().tolist() == [world * (world + 1) / 2] * 24
    gathered = torch.empty(2 * world, 3) if rank else torch.empty(3, 2 * world).t()
    dist.all_gather_into_tensor(gathered, torch.full((2, 3), float(rank)))
    assert gathered[:, 0].tolist() == [r for r in range(world) for _ in range(2)]


def test_views_that_negate() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    negated = torch.full((5,), complex(0, rank + 1)).conj().imag
    assert negated.is_neg()
    dist.all_reduce(negated)
    assert negated.tolist() == [-world * (world + 1) / 2] * 5


def test_parameters_that_require_gradients() -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    with torch.no_grad():
        dist.all_reduce(parameter)
    assert parameter.tolist() == [dist.get_world_size()] * 4


def test_nothing_and_one_number() -> None:
    empty = torch.empty(0)
    dist.all_reduce(empty)
    one = torch.tensor(1.0)
    dist.all_reduce(one)
    assert one.item() == dist.get_world_size()


def test_what_gloo_does_still_works() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    x = torch.ones(3)
    dist.reduce(x, 0)
    assert rank != 0 or x.tolist() == [world] * 3
    parts = [torch.empty(1) for _ in range(world)] if rank == 0 else None
    dist.gather(torch.tensor([float(rank)]), parts, 0)
    assert parts is None or [part.item() for part in parts] == list(range(world))
    mine = torch.empty(1)
    dist.scatter(mine, [torch.tensor([10.0 * r]) for r in range(world)] if rank == 0 else None, 0)
    assert mine.item() == 10 * rank
    right, left = (rank + 1) % world, (rank - 1) % world
    sending = dist.isend(torch.tensor([rank]), right)
    received = torch.empty(1, dtype=torch.int64)
    dist.recv(received, left)
    assert sending is not None
    sending.wait()
    assert received.item() == left
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, torch.tensor([rank]), right),
            dist.P2POp(dist.irecv, received, left),
        ]
    )
    for work in works:
        work.wait()
    objects: list[Any] = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(world)]
    dist.broadcast_object_list(objects, 0)


def test_all_to_all_of_tensors() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.int64):
        sent = [torch.full((to + 1,), 10 * rank + to).to(dtype) for to in range(world)]
        received = [torch.empty(rank + 1, dtype=dtype) for _ in range(world)]
        dist.all_to_all(received, sent)
        assert [part.tolist() for part in received] == [
            [10 * source + rank] * (rank + 1) for source in range(world)
        ]


def test_functional_collectives() -> None:
    world = dist.get_world_size()
    assert dist.group.WORLD is not None
    name = dist.group.WORLD.group_name
    assert functional.all_reduce(torch.ones(3), "sum", name).tolist() == [world] * 3
    whole = functional.all_gather_tensor(torch.ones(2), 0, name)
    assert functional.reduce_scatter_tensor(whole, "sum", 0, name).tolist() == [world] * 2


def test_data_parallel_gradients() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel(torch.full((2, 4), dist.get_rank() + 1.0)).sum().backward()
    mean = sum(range(1, dist.get_world_size() + 1)) / dist.get_world_size()
    assert model.weight.grad is not None
    torch.testing.assert_close(model.weight.grad, torch.full((3, 4), 2 * mean))


SERVED = {
    "_allgather_base", "_reduce_scatter_base", "all_gather_single", "all_gather_single_coalesced",
    "all_to_all_single", "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced",
    "allreduce", "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast",
    "reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
}  # fmt: skip
GLOOS = {"gather", "scatter", "reduce", "send", "recv", "recv_anysource", "monitored_barrier"}
# Not collectives: what a group is, how it is set up and how it ends.
OF_THE_GROUP = {
    "abort", "bound_device_id", "boxed", "get_group_store", "group_desc", "group_name",
    "merge_remote_group", "name", "rank", "set_timeout", "shutdown", "size", "split_group",
    "unbox", "use_pg_for_symm_mem_rendezvous",
}  # fmt: skip


def test_every_method_of_torchs_class_is_known() -> None:
    """Fails with the first torch that has a collective more."""
    public = {name for name in dir(dist.ProcessGroup) if name[0].islower()}
    assert public - SERVED - GLOOS - OF_THE_GROUP == set()


@pytest.mark.parametrize("name", sorted(SERVED))
def test_dispatched_methods_are_overridden(name: str) -> None:
    assert name in vars(type(dist.group.WORLD))


def ranks() -> range:
    return range(dist.get_world_size())


def below_zero() -> list[int]:
    """Splits of four rows, one of which is of fewer than none."""
    return [5, -1, *[0] * (dist.get_world_size() - 2)]


META = torch.ones(4, device="meta")
# Calls of two tensors, one read and one to be written, and what is said of them.
REFUSED: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], Any], int, str]] = {
    "all_reduce": (lambda x, out: dist.all_reduce(META), 3, "all_reduce: tensor is on meta"),
    "broadcast": (lambda x, out: dist.broadcast(META, 0), 3, "broadcast: tensor is on meta"),
    "all_gather, input": (
        lambda x, out: dist.all_gather_into_tensor(out, META), 8, "all_gather: input is on meta",
    ),
    "all_gather, output": (
        lambda x, out: dist.all_gather_into_tensor(META, x), 8, "all_gather: output is on meta",
    ),
    "reduce_scatter, input": (
        lambda x, out: dist.reduce_scatter_tensor(out, META), 2, "reduce_scatter: input is on meta",
    ),
    "all_to_all, output": (
        lambda x, out: dist.all_to_all_single(META, x), 4, "all_to_all: output is on meta",
    ),
    "all_to_all, list": (
        lambda x, out: dist.all_to_all([out] * len(ranks()), [META] * len(ranks())), 4,
        r"all_to_all: input_tensor_list\[0\] is on meta",
    ),
    "sizes": (
        lambda x, out: dist.all_gather_into_tensor(out, x), 5,
        "all_gather: 4 elements of torch.float32 on each of",
    ),
    "splits": (
        lambda x, out: dist.all_to_all_single(out, x, [1] * 9, [1] * 9), 9,
        "all_to_all: the splits",
    ),
    "splits below zero": (
        lambda x, out: dist.all_to_all_single(out, x, below_zero(), below_zero()), 4,
        "all_to_all: the splits",
    ),
    "lists too short": (
        lambda x, out: dist.all_to_all([out], [x]), 4,
        "all_to_all: input_tensor_list has 1 tensors for",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_wrong_calls_say_what_is_wrong_and_write_nothing(
    case: tuple[Callable[[torch.Tensor, torch.Tensor], Any], int, str],
) -> None:
    call, outputs, sentence = case
    x, out = torch.arange(4.0), torch.full((outputs,), 7.0)
    with pytest.raises((plait.Error, ValueError), match=sentence):
        call(x, out)
    assert x.tolist() == [0, 1, 2, 3]
    assert out.tolist() == [7.0] * outputs
    dist.barrier()  # the group is of use after it


def test_ranks_that_disagree_all_hear_of_it() -> None:
    group = dist.new_group(backend="plait")
    with pytest.raises(plait.Error) as caught:
        dist.all_reduce(torch.ones(3 + dist.get_rank()), group=group)
    assert caught.value.code in (plait.Code.mismatch, plait.Code.peer_lost)


def test_a_group_is_made_on_all_ranks_before_any_may_destroy_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs, last = dist.ProcessGroupGloo, dist.get_world_size() - 1
    of_all = dist.distributed_c10d._get_default_store()

    def slow(*args: Any, **kwargs: Any) -> Any:
        made = theirs(*args, **kwargs)
        if dist.get_rank() == last:
            time.sleep(0.3)
            of_all.set("made", "")
        return made

    monkeypatch.setattr(dist, "ProcessGroupGloo", slow)
    group = dist.new_group(backend="plait")
    assert of_all.check(["made"])
    dist.destroy_process_group(group)


def test_a_destroyed_group_is_of_no_use() -> None:
    group = dist.new_group(backend="plait")
    assert isinstance(group, Group)
    dist.all_reduce(torch.ones(1), group=group)
    method = group.allreduce
    dist.destroy_process_group(group)
    with pytest.raises(plait.Error, match="has been left"):
        method([torch.ones(1)], AllreduceOptions())


def test_abort_wakes_the_others(gloo: Group) -> None:
    group = dist.new_group(backend="plait")
    assert isinstance(group, Group)
    dist.barrier(group)
    dist.barrier(gloo)  # the others have left the first barrier too
    if dist.get_rank() == 0:
        group.abort()
    else:
        with pytest.raises(plait.Error, match="aborted"):
            dist.barrier(group)
