"""Tensors as rows of a product."""

import operator as operators
from collections.abc import Callable
from typing import Any

import torch

from plait._native import Code, Dtype, TensorView
from plait.errors import Error, refuse
from plait.torch import tensors

_FLOATS = {torch.float32: Dtype.f32, torch.bfloat16: Dtype.bf16, torch.float16: Dtype.f16}


def float_dtype(tensor: torch.Tensor, operator: str, name: str) -> Dtype:
    """Return plait's name of a dtype that products take."""
    known = _FLOATS.get(tensor.dtype)
    if known is None:
        raise Error(
            Code.invalid_argument,
            f"{operator}: {name} is {tensor.dtype}; products take {', '.join(map(str, _FLOATS))}",
            operator=operator,
        )
    return known


def check_matrix(tensor: torch.Tensor, operator: str, name: str) -> None:
    """Raise Error unless the tensor has two dimensions, and elements that a product takes."""
    tensors.check(tensor, operator, name)
    check_floats(tensor, operator, name)


def check_floats(tensor: torch.Tensor, operator: str, name: str) -> None:
    """Do the rest of check_matrix() for a tensor that tensors.check() has let pass."""
    float_dtype(tensor, operator, name)
    if tensor.dim() != 2:
        raise Error(
            Code.invalid_argument,
            f"{operator}: {name} has {tensor.dim()} dimensions, not 2",
            operator=operator,
        )


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a matrix whose rows a product can read: a copy where elements are apart or shared."""
    rows, cols = tensor.shape
    strides = tensor.stride()
    apart = (cols > 1 and strides[1] != 1) or (rows > 1 and strides[0] < cols)
    return tensor.contiguous() if apart else tensor


def view(tensor: torch.Tensor) -> TensorView:
    """View a checked tensor, whose elements lie side by side in a row, for the call it is made for.

    The caller keeps a name for the tensor until the call returns.
    """
    rows, cols = tensor.shape
    dtype = _FLOATS[tensor.dtype]
    return TensorView(tensor.data_ptr(), dtype, rows, cols, tensor.stride(0) if rows > 1 else cols)


def bias_row(bias: torch.Tensor | None, outputs: int, operator: str) -> torch.Tensor | None:
    """Return a bias as a row that a product can read, or refuse it in words."""
    if bias is None:
        return None
    tensors.check(bias, operator, "bias")
    float_dtype(bias, operator, "bias")
    if bias.dim() != 1 or bias.shape[0] != outputs:
        raise Error(
            Code.invalid_argument,
            f"{operator}: bias is {list(bias.shape)}, not [{outputs}]",
            operator=operator,
        )
    return as_rows(bias.detach().reshape(1, -1))


def count_of_rows(rows: Any, operator: str) -> int:
    """Return what a caller says of the rows of all ranks, or refuse it in words.

    >>> count_of_rows(7, "all_gather_matmul")
    7
    """
    try:
        count = None if isinstance(rows, bool) else operators.index(rows)
    except TypeError:
        count = None
    if count is None:
        refuse(operator, f"rows is {rows!r}, not a whole number")
    if count < 0:
        refuse(operator, f"rows is {count}, and there can't be fewer than none")
    if count >= 1 << 63:
        refuse(operator, f"rows is {count}; it must be below 2 ** 63")
    return count


def shard_of_rows(first: int, inner: int, rank: int, world: int, operator: str) -> int:
    """Count this rank's share of a first dimension, each of whose elements is `inner` rows."""
    if inner > 1 and first % world != 0:
        raise Error(
            Code.invalid_argument,
            f"{operator}: the first of several dimensions is {first}, which {world} ranks can't "
            "share evenly",
            operator=operator,
        )
    count_of_rows(first * inner, operator)
    return first // world + (rank < first % world)


def check_same_device(operator: str, **operands: torch.Tensor | None) -> None:
    """Raise Error unless all are plain tensors of floats on one device."""
    given = {name: one for name, one in operands.items() if one is not None}
    for name, one in given.items():
        tensors.check(tensors.resolved(one), operator, name, on_gpu=True)
        float_dtype(one, operator, name)
    x = given["x"]
    for name, one in given.items():
        if one.device != x.device:
            refuse(
                operator,
                f"x is on {x.device}, and {name} on {one.device}; all operands of a call are on "
                "the same device",
            )


def fitting_weight(
    operator: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    turned: bool,
) -> torch.Tensor:
    """Refuse operands that don't fit, and return the weight as [k, n]."""
    check_same_device(operator, x=x, weight=weight, bias=bias)
    for name, one in (("x", x), ("weight", weight)):
        check_floats(one, operator, name)
    by = weight.detach() if turned else weight.detach().t()
    if x.dtype != weight.dtype:
        refuse(operator, f"x is {x.dtype}, and weight {weight.dtype}")
    if x.shape[1] != by.shape[0]:
        refuse(operator, f"x is {list(x.shape)}, and the weight has {by.shape[0]} inputs")
    if bias is not None and list(bias.shape) != [by.shape[1]]:
        refuse(operator, f"bias is {list(bias.shape)}, not [{by.shape[1]}]")
    return by


# How many rows an operator's result has: of the rows of x, of where this rank stands (its rank, and
# how many there are), and of the rows of all ranks, which are -1 where each has as many.
Place = Callable[[], tuple[int, int]]
RowsOf = Callable[[int, Place, int], int]


def _same_rows(own: int, place: Place, rows: int) -> int:
    return own


def own_rows(m: int, place: Place, rows: int) -> int:
    """Count this rank's rows of m that the ranks share."""
    rank, size = place()
    return (m + size - 1 - rank) // size  # the first (m mod size) ranks own one row more


def _all_rows(own: int, place: Place, rows: int) -> int:
    return own * place()[1] if rows < 0 else rows


ROWS_OF: dict[str, RowsOf] = {
    "matmul": _same_rows,
    "matmul_all_reduce": _same_rows,
    "matmul_reduce_scatter": own_rows,
    "matmul_all_gather": _all_rows,
    "all_gather_matmul": _all_rows,
    "reduce_scatter_matmul": own_rows,
    "all_reduce_matmul": _same_rows,
}
GATHERING = tuple(name for name, rows in ROWS_OF.items() if rows is _all_rows)


def rows_that_all_have(operator: str, own: int, place: Place, rows: int) -> int:
    """Count the rows of all ranks, or refuse a count of which `own` are not this rank's.

    It is asked before memory for them is: a wrong count may be one that no memory holds.
    """
    rows = _all_rows(own, place, rows)
    share = own_rows(rows, place, -1)
    if own != share:
        rank, world = place()
        refuse(operator, f"x has {own} rows, and rank {rank} of {world} has {share} of {rows}")
    return rows
