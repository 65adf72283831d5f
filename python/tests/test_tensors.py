"""Which tensors are refused, and in what words."""

import pytest
import torch

import plait
from plait.torch import tensors


class Wrapped(torch.Tensor):
    """A stand-in for DTensor: a tensor whose elements are elsewhere."""


REFUSED = [
    (torch.ones(3, device="meta"), "is on meta; plait computes on cpu"),
    (torch.ones(3).to_sparse(), "is torch.sparse_coo; plait takes strided tensors"),
    (torch.ones(3, dtype=torch.complex64).conj(), "conjugates or negates"),
    (torch.ones(3, dtype=torch.complex64).conj().imag, "conjugates or negates"),
    (torch.ones(3).as_subclass(Wrapped), "is a Wrapped; plait takes plain tensors"),
]


@pytest.mark.parametrize(("tensor", "words"), REFUSED, ids=[case[1] for case in REFUSED])
def test_refusals(tensor: torch.Tensor, words: str) -> None:
    with pytest.raises(plait.Error, match="all_reduce: x ") as caught:
        tensors.check(tensor, "all_reduce", "x")
    assert words in str(caught.value)
    assert caught.value.operator == "all_reduce"


@pytest.mark.parametrize("tensor", [torch.ones(3), torch.nn.Parameter(torch.ones(2, 2)).t()])
def test_taken(tensor: torch.Tensor) -> None:
    assert tensors.refusal(tensor) is None


def test_dtypes() -> None:
    assert tensors.dtype(torch.ones(1), "all_reduce", "x") is plait.Dtype.f32
    with pytest.raises(plait.Error, match=r"all_reduce: x is torch\.float64; plait computes with"):
        tensors.dtype(torch.ones(1, dtype=torch.float64), "all_reduce", "x")


def test_what_is_not_computed_with_moves_by_the_byte() -> None:
    assert tensors.movable(torch.ones(3, dtype=torch.bfloat16)) == (3, plait.Dtype.bf16)
    assert tensors.movable(torch.ones(3, dtype=torch.complex128)) == (48, plait.Dtype.s8)
