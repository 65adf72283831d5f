"""Every collective, on arrays of NumPy and tensors of torch, without copies."""

from typing import Any

import numpy as np
import pytest
import torch

import plait

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "s8": torch.int8}


@pytest.fixture(params=list(DTYPES.values()), ids=list(DTYPES))
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    assert isinstance(request.param, torch.dtype)
    return request.param


def numbers(rank: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    return ((torch.arange(n) * 7 + rank * 3) % 11 - 5).to(dtype)


WORLD = 3
N = 100


def sum_over_ranks(dtype: torch.dtype) -> torch.Tensor:
    return sum(numbers(rank, N, torch.float32) for rank in range(WORLD)).to(dtype)  # type: ignore


def test_all_reduce(dtype: torch.dtype) -> None:
    def body(comm: plait.Communicator) -> None:
        x = numbers(comm.rank, N, dtype)
        out = torch.empty(N, dtype=dtype)
        plait.all_reduce(x, comm, out)
        assert torch.equal(x, numbers(comm.rank, N, dtype))
        assert torch.equal(out, sum_over_ranks(dtype))
        plait.all_reduce(x, comm)
        assert torch.equal(x, out)

    plait.run_in_threads(WORLD, body)


def test_reduce_scatter_and_all_gather(dtype: torch.dtype) -> None:
    counts = [10, 0, 90]

    def body(comm: plait.Communicator) -> None:
        mine = torch.empty(counts[comm.rank], dtype=dtype)
        plait.reduce_scatter(numbers(comm.rank, N, dtype), mine, comm, counts)
        begin = sum(counts[: comm.rank])
        assert torch.equal(mine, sum_over_ranks(dtype)[begin : begin + len(mine)])
        everything = torch.empty(N, dtype=dtype)
        plait.all_gather(mine, everything, comm, counts)
        assert torch.equal(everything, sum_over_ranks(dtype))

    plait.run_in_threads(WORLD, body)


def test_broadcast_and_all_to_all(dtype: torch.dtype) -> None:
    def body(comm: plait.Communicator) -> None:
        x = numbers(comm.rank, N, dtype)
        plait.broadcast(x, 1, comm)
        assert torch.equal(x, numbers(1, N, dtype))
        send = torch.full((6,), comm.rank).to(dtype)
        receive = torch.empty(6, dtype=dtype)
        plait.all_to_all(send, receive, comm)
        assert receive.tolist() == [0, 0, 1, 1, 2, 2]
        plait.all_to_all(send, receive, comm, [1, 2, 3], [comm.rank + 1] * 3)

    with pytest.raises(plait.Error, match="all_to_all"):  # 3 * (rank + 1) are not 6 on all ranks
        plait.run_in_threads(WORLD, body)


def test_rows_reach_their_groups_and_come_back(dtype: torch.dtype) -> None:
    def body(comm: plait.Communicator) -> None:
        # Rank r has r + 1 rows for group 0 of each rank, and one for group 1 of the last.
        counts = [comm.rank + 1, 0] * (WORLD - 1) + [comm.rank + 1, 1]
        x = numbers(comm.rank, sum(counts) * 4, dtype).reshape(-1, 4)
        received = plait.all_to_all_rows(x, counts, comm, groups=2)
        assert received.groups == 2
        last = int(comm.rank == WORLD - 1)
        assert received.counts == [1, last, 2, last, 3, last]
        assert received.rows_of_groups() == [6, 3 * last]
        rows = torch.utils.dlpack.from_dlpack(received.rows)
        first = [numbers(rank, 40, dtype)[4 * comm.rank * (rank + 1) :] for rank in range(WORLD)]
        assert torch.equal(rows[0], first[0][:4])
        assert torch.equal(rows[5], first[2][8:12])
        back = plait.all_to_all_rows(received.rows, received.counts, comm, groups=2, back=True)
        assert torch.equal(torch.utils.dlpack.from_dlpack(back.rows), x)
        assert back.counts == counts
        with pytest.raises(plait.Error, match="the counts add up to 0, not to the") as refused:
            plait.all_to_all_rows(x, [0] * 6, comm, groups=2)
        assert refused.value.operator == "all_to_all_rows"

    plait.run_in_threads(WORLD, body)


def test_more_rows_than_a_rank_takes_are_refused() -> None:
    def body(comm: plait.Communicator) -> None:
        x = np.ones((4, 2), dtype=np.float32)
        plait.all_to_all_rows(x, [4, 0, 0], comm, most_rows=11)

    with pytest.raises(plait.Error, match="rank 0 takes at most 11 rows, but 12 are for it"):
        plait.run_in_threads(WORLD, body)


def test_ranks_wait_for_two_communicators_in_opposite_orders() -> None:
    def body(comm: plait.Communicator) -> None:
        part = comm.split(0, comm.rank)
        assert part is not None
        sums = [np.ones(400_000, dtype=np.float32) for _ in range(2)]
        pending = [plait.start_all_reduce(sums[0], comm), plait.start_all_reduce(sums[1], part)]
        for number in (0, 1) if comm.rank == 0 else (1, 0):
            pending[number].wait()
        assert all((data == comm.world).all() for data in sums)

    plait.run_in_threads(WORLD, body)


def test_started_ones_finish_in_order() -> None:
    def body(comm: plait.Communicator) -> None:
        x = np.full(5, comm.rank + 1.0, dtype=np.float32)
        first = plait.start_all_reduce(x, comm)
        parts, whole = np.ones(2, dtype=np.int8), np.empty(6, dtype=np.int8)
        second = plait.start_all_gather(parts, whole, comm)
        while not second.done():
            first.progress()
        first.wait()
        assert x.tolist() == [6] * 5
        assert whole.tolist() == [1] * 6
        mine = np.empty(2, dtype=np.int8)
        plait.start_reduce_scatter(whole, mine, comm).wait()
        assert mine.tolist() == [3, 3]
        data = np.full(4, comm.rank, dtype=np.float32)
        receive = np.empty(3, dtype=np.float32)
        pending = [
            plait.start_broadcast(data, 1, comm),
            plait.start_all_to_all(np.full(3, comm.rank, dtype=np.float32), receive, comm),
            plait.start_barrier(comm),
        ]
        pending[-1].wait()
        assert all(each.done() for each in pending)
        assert (data.tolist(), receive.tolist()) == ([1] * 4, [0, 1, 2])
        uneven = np.empty(3 * (comm.rank + 1), dtype=np.float32)
        sent = np.full(6, comm.rank, dtype=np.float32)
        plait.start_all_to_all(sent, uneven, comm, [1, 2, 3], [comm.rank + 1] * 3).wait()
        assert uneven.tolist() == [source for source in range(3) for _ in range(comm.rank + 1)]

    plait.run_in_threads(WORLD, body)


def test_what_was_started_keeps_its_arrays_and_may_be_dropped() -> None:
    def body(comm: plait.Communicator) -> None:
        pending = [
            plait.start_all_reduce(np.ones(1 << 16, dtype=np.float32), comm) for _ in range(4)
        ]
        for each in reversed(pending):
            each.wait()
        del pending, each
        plait.start_all_reduce(np.ones(1 << 16, dtype=np.float32), comm)  # waits when it is dropped
        dropped = plait.start_all_reduce(np.ones(8, dtype=np.float32), comm)
        comm.leave()
        with pytest.raises(plait.Error):
            dropped.wait()

    plait.run_in_threads(2, body)


REFUSED = [
    (np.zeros((4, 4), dtype=np.float32)[:, 1], "data is not contiguous"),
    (np.zeros(4, dtype=np.int64), "data is int64"),
    (np.zeros(4, dtype=np.complex64), "data is complex64"),
    (np.zeros(4, dtype=bool), "data is bool"),
    (np.zeros(4, np.dtype(np.float32).newbyteorder()), "whose bytes are in another order"),
    (np.array([None, "x"]), "data cannot be read: DLPack only supports"),
    (torch.ones(3).to_sparse(), "data cannot be read: Can't export tensors with layout"),
    ([1.0], "data is of type list; it can be an array"),
]


@pytest.mark.parametrize(("data", "sentence"), REFUSED, ids=[case[1] for case in REFUSED])
def test_refusals_name_the_argument(data: Any, sentence: str) -> None:
    with plait.Communicator.connect() as comm:
        with pytest.raises(plait.Error, match=f"^all_reduce: .*{sentence}"):
            plait.all_reduce(data, comm)
        with pytest.raises(plait.Error, match=f"^all_reduce: .*{sentence}"):
            plait.start_all_reduce(data, comm)


def test_read_only_memory_is_only_read() -> None:
    constant = np.ones(4, dtype=np.float32)
    constant.flags.writeable = False
    with plait.Communicator.connect() as comm:
        out = np.zeros(4, dtype=np.float32)
        plait.all_gather(constant, out, comm)
        assert out.tolist() == [1] * 4
        with pytest.raises(plait.Error, match="all_gather: all is read-only, and the call writes"):
            plait.all_gather(out, constant, comm)
