"""What computes lets other threads of the program go on."""

import _thread
import sys
import time
from collections.abc import Callable

import pytest

from plait import _native
from plait._native import Dtype


def lets_others_run(call: Callable[[], object]) -> bool:
    """Whether a thread that needs the GIL gets it from within a call, made again and again."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # seconds: Python itself never takes the GIL from the thread
    gate = _thread.allocate_lock()
    gate.acquire()
    went_on = []

    def other() -> None:
        gate.acquire()
        went_on.append(True)

    try:
        _thread.start_new_thread(other, ())
        time.sleep(0.05)  # it waits at the gate
        gate.release()
        for _ in range(20_000):
            call()
            if went_on:
                return True
        return False
    finally:
        sys.setswitchinterval(interval)


def gemm() -> Callable[[], object]:
    return lambda: _native.Gemm(8, 64, 64, x=Dtype.f32, weight=Dtype.f32, out=Dtype.f32)


def pack() -> Callable[[], object]:
    trace = _native.Trace(0)
    for _ in range(1000):
        trace.mark(_native.Lane.compute, "here")
    return trace.pack


@pytest.mark.parametrize("make", [gemm, pack])
def test_a_call_that_computes_releases_the_gil(make: Callable[[], Callable[[], object]]) -> None:
    assert lets_others_run(make())


def test_a_call_that_looks_something_up_keeps_it() -> None:
    # Or the test above would pass whatever calls do.
    assert not lets_others_run(lambda: _native.balanced_shard(10, 0, 2))
