"""Operands on a GPU: what reaches the operators, and what is refused without one."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import plait
from plait.torch import tensors

OUT_IN = plait.WeightLayout.out_in
BF16 = plait.Dtype.bf16
CUDA, ROCM = 2, 10  # device types of DLPack

OPERATORS: list[Callable[..., None]] = [
    plait.matmul,
    plait.matmul_all_reduce,
    plait.matmul_reduce_scatter,
    plait.all_gather_matmul,
]


class DLTensor(ctypes.Structure):
    """DLPack's description of a tensor, with the deleter of a DLManagedTensor behind it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Rows:
    """Rows of bf16 that are said to be on a device: nothing reads them."""

    def __init__(self, rows: int, cols: int, device: int = CUDA, index: int = 0) -> None:
        self.memory = torch.zeros(rows, cols, dtype=torch.bfloat16)
        self.shape = (ctypes.c_int64 * 2)(rows, cols)
        self.strides = (ctypes.c_int64 * 2)(cols, 1)
        data = self.memory.data_ptr()
        of_bfloat16 = (4, 16, 1)
        self.described = DLTensor(
            data, device, index, 2, *of_bfloat16, self.shape, self.strides, 0, None, None
        )

    def __dlpack__(self, *, stream: None = None) -> Any:
        return new_capsule(ctypes.addressof(self.described), b"dltensor", None)


def operands(**given: Any) -> dict[str, Any]:
    usual = {"x": Rows(2, 64), "weight": plait.WeightView(Rows(8, 64), OUT_IN), "out": Rows(2, 8)}
    return {**usual, **given}


def refused(call: Callable[..., object], **given: Any) -> str:
    with pytest.raises(plait.Error) as caught:
        call(**given)
    assert caught.value.code is plait.Code.invalid_argument
    return str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("call", OPERATORS, ids=lambda call: call.__name__)
def test_without_a_gpu(call: Callable[..., None]) -> None:
    with plait.Communicator.connect() as comm:
        words = refused(call, **operands(comm=comm))
    assert words.startswith(f"{call.__name__}: cuda:0 cannot be used: ")


def on_gpu(rows: int, cols: int) -> plait.TensorView:
    """Rows that are said to be on a GPU, by an address that nothing reads."""
    return plait.TensorView(4096, BF16, rows, cols, cols, device="cuda:0")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another GPU": ({"x": Rows(2, 64, index=1)}, "weight is on cuda:0, and the operator is on"),
    "x on the CPU": ({"x": torch.zeros(2, 64, dtype=torch.bfloat16)}, "weight is on cuda:0"),
    "out on the CPU": (
        {"out": torch.zeros(2, 8, dtype=torch.bfloat16)},
        "out is on cpu, and the operator is on cuda:0, where all operands must be",
    ),
    "another device": ({"x": Rows(2, 64, ROCM)}, "x is on a device that is neither the CPU nor a"),
    "by address": ({"x": on_gpu(2, 63)}, "x is 2 x 63, not 2 x 64"),
    "stream of words": ({"stream": "side"}, "stream is 'side'; it can be a cudaStream_t as a"),
    "stream below 0": ({"stream": -1}, "stream is -1; it can be a cudaStream_t as a number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    given, words = REFUSED[case]
    with plait.Communicator.connect() as comm:
        assert words in refused(plait.matmul, **operands(comm=comm, **given))


class Stream:
    """A torch.cuda.Stream, as far as plait reads it."""

    cuda_stream = 4096


@pytest.mark.parametrize("stream", [4096, Stream()])
def test_the_cpu_has_no_stream(stream: object) -> None:
    x, out = np.ones((2, 6), np.float32), np.full((2, 4), 7, np.float32)
    weight = plait.WeightView(np.ones((4, 6), np.float32), OUT_IN)
    words = "a stream was given for operands on the cpu, which has none"
    desc = plait.OpDesc(plait.Operator.matmul, m=2, n=4, k=6, x=plait.Dtype.f32)
    with plait.Communicator.connect() as comm:
        given = {"x": x, "weight": weight, "out": out, "stream": stream}
        assert words in refused(plait.matmul, comm=comm, **given)
        op = plait.prepare(desc, comm)
        assert words in refused(op.run, **given)
        assert (out == 7).all()
        op.run(x, weight, out, stream=None)
        assert (out == 6).all()


def test_devices_have_names() -> None:
    assert on_gpu(1, 1).device == "cuda:0"
    desc = plait.OpDesc(plait.Operator.matmul, m=2, n=4, k=6, x=BF16, device="cuda")
    assert desc.device == "cuda:0"
    words = refused(plait.OpDesc, op=desc.op, m=2, n=4, k=6, x=BF16, device="gpu")
    assert words == "OpDesc: device is 'gpu'; it can be cpu, cuda or cuda:1"


def test_what_only_the_cpu_reads() -> None:
    weight = plait.WeightView(Rows(8, 64), OUT_IN)
    assert "weight is on cuda:0" in refused(plait.PackedWeight, weight=weight)
    assert "weight is on cuda:0" in refused(plait._native._fingerprint, weight=weight)
    with plait.Communicator.connect() as comm:
        assert "data is on cuda:0; this call" in refused(
            plait.all_reduce, data=Rows(2, 64), comm=comm
        )


def test_what_plait_torch_says_of_a_gpu() -> None:
    words = tensors.refusal_of_device(torch.device("cuda:0"))
    assert words.startswith("is on cuda:0; this call computes on cpu, and on GPUs there are ")
