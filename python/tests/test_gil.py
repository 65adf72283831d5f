"""Calls that compute let other threads of the program go on."""

import _thread
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest

import plait
from plait import _native
from plait._native import Dtype


def lets_others_run(call: Callable[[], object], seconds: float) -> bool:
    """Tell whether a thread that needs the GIL gets it from within a call, made again and again.

    On a busy machine the thread may get a processor much later than the GIL is there for it.
    """
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
        end = time.monotonic() + seconds
        while time.monotonic() < end:
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


X, W, OUT = (np.ones(shape, np.float32) for shape in ((8, 64), (64, 64), (8, 64)))
OUT_IN = plait.WeightLayout.out_in
BY = plait.WeightView(W, OUT_IN)


def operator() -> Callable[[], object]:
    comm = plait.Communicator.connect()
    return lambda: plait.matmul_all_reduce(X, BY, OUT, comm)


def prepared() -> Callable[[], object]:
    desc = plait.OpDesc(plait.Operator.all_gather_matmul, m=8, n=64, k=64, x=Dtype.f32)
    op = plait.prepare(desc, plait.Communicator.connect())
    return lambda: op.run(X, BY, OUT)


def layer() -> plait.RowParallelLinear:
    kind = plait.WeightKind(Dtype.f32)
    desc = plait.LinearDesc(inputs=64, outputs=64, layout=OUT_IN, weight=kind)
    return plait.RowParallelLinear(desc, plait.Communicator.connect())


def forward() -> Callable[[], object]:
    row = layer()
    return lambda: row.forward(X, BY, OUT)


def backward() -> Callable[[], object]:
    row, grad_x = layer(), np.empty_like(X)
    return lambda: row.backward(OUT, weight=BY, grad_x=grad_x)


def quantize() -> Callable[[], object]:
    scheme = plait.QuantScheme("s8")
    return lambda: plait.quantize(W, layout=OUT_IN, scheme=scheme)


def dequantize() -> Callable[[], object]:
    quantized = plait.quantize(W, layout=OUT_IN, scheme=plait.QuantScheme("s8"))
    return lambda: quantized.dequantize(W.copy(), layout=OUT_IN)


def pack_weight() -> Callable[[], object]:
    return lambda: plait.PackedWeight(W, layout=OUT_IN)


def repack() -> Callable[[], object]:
    packed = plait.PackedWeight(W, layout=OUT_IN)
    return lambda: packed.repack(BY)


COMPUTE = [
    gemm, pack, operator, prepared, forward, backward, quantize, dequantize, pack_weight, repack,
]  # fmt: skip


@pytest.mark.parametrize("make", COMPUTE)
def test_a_call_that_computes_releases_the_gil(make: Callable[[], Callable[[], object]]) -> None:
    assert lets_others_run(make(), seconds=20)


def test_a_call_that_looks_something_up_keeps_it() -> None:
    # Or the test above would pass whatever calls do.
    assert not lets_others_run(lambda: _native.balanced_shard(10, 0, 2), seconds=0.2)
