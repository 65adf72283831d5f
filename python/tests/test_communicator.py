"""Groups of ranks, most of them threads of this process."""

import gc
import os
import re
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from launching import completed, ended

import plait


def test_one_rank_alone() -> None:
    with plait.Communicator.connect() as comm:
        assert (comm.rank, comm.world, comm.link) == (0, 1, None)
        assert "rank 0 of 1" in repr(comm)
    with pytest.raises(plait.Error, match="has been left"):
        plait.barrier(comm)
    comm.leave()  # again: nothing happens
    assert "left" in repr(comm)


LEAVES = """
import os, plait
comm = plait.Communicator.connect()
plait.barrier(comm)
if comm.rank == 1:
    plait.leave_all()
    os._exit(0)
try:
    while True:
        plait.barrier(comm)
except plait.Error as error:
    print(error.culprit, error)
"""


def test_leave_all_before_an_abrupt_end() -> None:
    comm = plait.Communicator.connect()
    plait.leave_all()
    assert comm.has_left
    plait.leave_all()  # again: nothing happens
    with plait.Communicator.connect() as another:  # the program goes on
        plait.barrier(another)
    command = [sys.executable, "-m", "plait", "run", "-n", "2", "--", sys.executable, "-c", LEAVES]
    done = ended(*command)
    assert re.search(r"\b1 .*rank 1 .*has left the group", done.stdout), done.stdout + done.stderr


GOES_ON = """
import os, signal
import numpy as np
import plait
comm = plait.Communicator.connect()
x, w = np.ones((4, 32), np.float32), np.full((8, 32), comm.rank + 1, np.float32)
y = np.empty((4, 8), np.float32)
weight = plait.WeightView(w, plait.WeightLayout.out_in)
try:
    while True:
        plait.matmul_all_reduce(x, weight, y, comm)
        if comm.rank == 0:  # the others may still be in the call
            os.kill(os.getpid(), signal.SIGKILL)
except plait.Error as error:
    assert error.code == plait.Code.peer_lost, error
left = comm.survivors()
assert left.completed_calls <= comm.completed_calls <= 1, comm.completed_calls
comm.leave()
plait.matmul_all_reduce(x, weight, y, left.comm)
print(f"rank {left.comm.rank} of {left.comm.world} without {left.lost}: {y[2, 3]:g}\\n", end="")
"""


def test_survivors_go_on() -> None:
    command = [sys.executable, "-m", "plait", "run", "-n", "3", "--linger", "300s", "--"]
    done = ended(*command, sys.executable, "-c", GOES_ON)
    lines = [f"rank {rank} of 2 without [0]: 160" for rank in range(2)]
    assert sorted(done.stdout.splitlines()) == lines, done.stdout + done.stderr


def test_survivors_of_no_loss() -> None:
    with plait.Communicator.connect() as comm:
        with pytest.raises(plait.Error, match="no rank of this group is lost"):
            comm.survivors()
        plait.barrier(comm)
        assert comm.completed_calls == 1


def test_check_ranks() -> None:
    def body(comm: plait.Communicator) -> None:
        comm.check_ranks()

        def goes_on() -> None:
            plait.barrier(comm)
            if comm.rank == 0:  # the others may still be in the call
                comm.abort("enough")
            while True:
                comm.check_ranks()

        with pytest.raises(plait.Error, match="enough") as caught:
            goes_on()
        assert (caught.value.code, caught.value.culprit) == (plait.Code.peer_lost, 0)

    plait.run_in_threads(3, body)


def test_a_thread_ends_a_group_that_another_one_leaves() -> None:
    """Nothing of the communicator is freed while the thread still ends it."""
    said = []

    def end(comm: plait.Communicator) -> None:
        try:
            while True:
                comm.abort("enough")
        except plait.Error as error:
            said.append(str(error))

    for _ in range(10):
        comm = plait.Communicator.connect()
        threads = [threading.Thread(target=end, args=(comm,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        comm.leave()
        for thread in threads:
            thread.join()
    assert said == ["this communicator has been left, and is of no use"] * 20


def test_rendezvous_over_a_store_of_the_callers() -> None:
    parts: list[list[bytes]] = [[b""] * 2 for _ in range(50)]
    calls = [0, 0]
    met = threading.Barrier(2)

    def connect(rank: int) -> plait.Communicator:
        def all_gather(mine: bytes) -> Sequence[bytes]:
            round_, calls[rank] = calls[rank], calls[rank] + 1
            parts[round_][rank] = mine
            met.wait(60)
            return parts[round_]

        place = plait.Place(rank=rank, world=2, job=f"{id(parts)}")
        return plait.Communicator.connect(place=place, all_gather=all_gather, transport="shm")

    sums = []

    def rank(number: int) -> None:
        with connect(number) as comm:
            x = np.array([number + 1], dtype=np.float32)
            plait.all_reduce(x, comm)
            sums.append(float(x[0]))

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sums == [3, 3]


def test_what_the_store_raises_comes_out() -> None:
    def broken(mine: bytes) -> Sequence[bytes]:
        raise KeyError("the store is gone")

    with pytest.raises(KeyError, match="the store is gone"):
        plait.Communicator.connect(place=plait.Place(0, 2), all_gather=broken, transport="shm")


def test_what_a_store_returns_is_bytes() -> None:
    def texts(mine: bytes) -> Any:
        return [mine, "text"]

    sentence = "connect: all_gather returned an object of type str, not bytes"
    with pytest.raises(plait.Error, match=sentence):
        plait.Communicator.connect(place=plait.Place(0, 2), all_gather=texts, transport="shm")


def test_split_and_link() -> None:
    def body(comm: plait.Communicator) -> None:
        part = comm.split(comm.rank % 2, comm.rank)
        assert part is not None
        assert (part.rank, part.world) == (comm.rank // 2, 2)
        assert comm.split(-1 if comm.rank else 0, 0) is None or comm.rank == 0
        linked = comm.with_link("25gbit,5us")
        assert linked.link == plait.parse_link("25gbit,5us")
        plait.barrier(linked)

    plait.run_in_threads(4, body)


def test_threads_run_beside_one_that_waits() -> None:
    seen: list[int] = []

    def body(comm: plait.Communicator) -> None:
        if comm.rank == 1:
            while not seen:
                time.sleep(0.001)
        else:
            seen.append(1)
        plait.barrier(comm)  # would never be left, were the GIL held in it

    plait.run_in_threads(2, body)


def test_an_exception_of_one_rank_ends_all() -> None:
    def body(comm: plait.Communicator) -> None:
        if comm.rank == 0:
            raise ValueError("mine")
        plait.barrier(comm)

    with pytest.raises((ValueError, plait.Error), match="mine"):
        plait.run_in_threads(2, body)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), float("inf")])
def test_a_timeout_is_positive(timeout: float) -> None:
    with pytest.raises(plait.Error, match="timeout"):
        plait.Communicator.connect(timeout=timeout)


def test_the_deadline_ends_a_wait() -> None:
    group = plait.ThreadGroup(2)
    late: list[plait.Communicator] = []
    starts = threading.Event()

    def join() -> None:
        starts.set()
        late.append(group.join(1))

    other = threading.Thread(target=join)
    other.start()
    starts.wait()
    comm = group.join(0, timeout=1.0)  # within which the other joins, on a busy machine too
    other.join()
    with pytest.raises(plait.Error) as caught:
        plait.barrier(comm)
    assert (caught.value.code, caught.value.culprit) == (plait.Code.timeout, 1)


Interrupt = Callable[[Callable[[], object]], float]
IsPrompt = Callable[[Callable[[], float]], bool]


def test_ctrl_c_ends_a_wait(interrupt: Interrupt, is_prompt: IsPrompt) -> None:
    codes = []

    def make_a_try() -> float:
        group = plait.ThreadGroup(2)
        interrupted = threading.Event()

        def other() -> None:
            with group.join(1) as comm:
                interrupted.wait(100)
                with pytest.raises(plait.Error) as caught:
                    plait.barrier(comm)
                codes.append(caught.value.code)

        thread = threading.Thread(target=other)
        thread.start()
        with group.join(0) as comm:
            seconds = interrupt(lambda: plait.barrier(comm))
        interrupted.set()
        thread.join()
        return seconds

    assert is_prompt(make_a_try)
    assert set(codes) == {plait.Code.peer_lost}


def later(seconds: float, signal_number: int) -> None:
    """Send this process a signal after some time; Python handles it in the main thread."""
    threading.Timer(seconds, os.kill, (os.getpid(), signal_number)).start()


def test_ctrl_c_ends_the_wait_for_a_turn(interrupt: Interrupt, is_prompt: IsPrompt) -> None:
    def make_a_try() -> float:
        group = plait.ThreadGroup(2)
        is_in_call = threading.Event()
        may_come = threading.Event()
        done = []
        comms: list[plait.Communicator] = []

        def peer() -> None:
            with group.join(1) as comm:
                is_in_call.wait(100)
                may_come.wait(100)
                plait.barrier(comm)
                done.append("peer")

        def user() -> None:
            is_in_call.set()
            plait.barrier(comms[0])
            done.append("user")

        threads = [threading.Thread(target=peer), threading.Thread(target=user)]
        threads[0].start()
        with group.join(0) as comm:
            comms.append(comm)
            threads[1].start()
            is_in_call.wait(100)
            time.sleep(0.5)  # the other thread is in the barrier, on a busy machine too
            seconds = interrupt(lambda: plait.barrier(comm))
            may_come.set()  # the other thread's call goes on
            for thread in threads:
                thread.join(100)
        assert sorted(done) == ["peer", "user"]
        return seconds

    assert is_prompt(make_a_try)


@pytest.fixture
def waiting() -> Iterator[plait.Communicator]:
    """Rank 0 of two, of which the other makes no call until the test is over."""
    group = plait.ThreadGroup(2)
    over = threading.Event()

    def peer() -> None:
        with group.join(1):
            over.wait(100)

    thread = threading.Thread(target=peer)
    thread.start()
    comm = group.join(0)
    before = signal.getsignal(signal.SIGUSR1)
    yield comm
    signal.signal(signal.SIGUSR1, before)
    over.set()
    thread.join(100)
    comm.leave()


@pytest.mark.parametrize("call", [plait.Communicator.leave, plait.barrier])
def test_a_handler_that_uses_what_it_interrupts_is_told(
    waiting: plait.Communicator, call: Callable[[plait.Communicator], None]
) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: call(waiting))
    later(1.0, signal.SIGUSR1)
    with pytest.raises(plait.Error, match="in a call of this communicator already") as caught:
        plait.barrier(waiting)
    assert caught.value.code == plait.Code.invalid_argument
    assert not waiting.has_left


def test_a_handler_that_drops_a_pending_ends_the_group(waiting: plait.Communicator) -> None:
    data = np.ones(4, dtype=np.float32)
    held = [plait.start_all_reduce(data, waiting), plait.start_all_reduce(data, waiting)]
    first = held.pop(0)
    signal.signal(signal.SIGUSR1, lambda *_: held.clear())
    later(1.0, signal.SIGUSR1)
    with pytest.raises(plait.Error, match="destroys a collective under way"):
        first.wait()
    assert held == []


def test_a_trace_lives_as_long_as_what_records_into_it() -> None:
    trace, other = plait.Trace(0), plait.Trace(0)
    alive, later = weakref.ref(trace), weakref.ref(other)
    comm = plait.Communicator.connect(trace=trace)
    comm.set_trace(other)
    del trace, other
    gc.collect()
    plait.barrier(comm)
    assert alive() is not None
    assert later() is not None
    comm.leave()
    del comm
    gc.collect()
    assert alive() is None
    assert later() is None


def test_what_a_rank_raises_before_it_has_joined_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_TIMEOUT", "soon")
    with pytest.raises(plait.Error, match="PLAIT_TIMEOUT"):
        plait.run_in_threads(2, plait.barrier)


def test_two_threads_of_a_rank_take_turns() -> None:
    """Each makes as many calls as the threads of the other rank: which is whose does not matter."""

    def body(comm: plait.Communicator) -> None:
        sums: list[float] = []

        def calls() -> None:
            for _ in range(50):
                x = np.full(1000, comm.rank + 1.0, dtype=np.float32)
                plait.all_reduce(x, comm)
                sums.append(float(x.sum()))

        threads = [threading.Thread(target=calls) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sums == [3000.0] * 100

    plait.run_in_threads(2, body)


def test_leaving_ends_the_call_of_another_thread_in_words() -> None:
    said: list[str] = []

    def body(comm: plait.Communicator) -> None:
        if comm.rank == 1:
            with pytest.raises(plait.Error):
                plait.barrier(comm)  # rank 0 never comes to its own
            return
        waits = threading.Event()

        def waiter() -> None:
            waits.set()
            try:
                x = np.ones(4, dtype=np.float32)
                plait.all_reduce(x, comm)
            except plait.Error as error:
                said.append(str(error))

        thread = threading.Thread(target=waiter)
        thread.start()
        waits.wait()
        time.sleep(0.05)
        comm.leave()
        thread.join()

    plait.run_in_threads(2, body)
    assert len(said) == 1


def test_the_end_of_a_program_leaves_its_groups() -> None:
    # Without that, the threads would come back to a Python that has ended, which aborts.
    program = """
import threading, plait
group = plait.ThreadGroup(4)
for rank in range(1, 4):
    threading.Thread(target=lambda r=rank: plait.barrier(group.join(r)), daemon=True).start()
comm = group.join(0)
"""
    for _ in range(10):
        completed(sys.executable, "-c", program, timeout=120)
