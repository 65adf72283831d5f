"""Tensors as memory: address, dtype, number of elements; and what is refused, in words."""

import torch

from plait._native import Code, Dtype
from plait.errors import Error

DTYPES = {
    torch.float32: Dtype.f32,
    torch.bfloat16: Dtype.bf16,
    torch.float16: Dtype.f16,
    torch.int8: Dtype.s8,
}


def refusal(tensor: torch.Tensor) -> str | None:
    """Why plait cannot read this tensor's memory; None where it can.

    >>> refusal(torch.ones(3)), refusal(torch.ones(3, device="meta"))
    (None, 'is on meta; plait computes on cpu')
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"is a {type(tensor).__name__}; plait takes plain tensors, such as its local part"
    if not tensor.is_cpu:
        return f"is on {tensor.device}; plait computes on cpu"
    if tensor.layout != torch.strided:
        return f"is {tensor.layout}; plait takes strided tensors"
    if tensor.is_conj() or tensor.is_neg():
        return "is a view that conjugates or negates; resolve_conj() and resolve_neg() copy it"
    return None


def wants_gradient(*operands: torch.Tensor | None) -> bool:
    """Say whether autograd, or a transform of functions, has to see what is made of these.

    Where it has not, a call that goes round it takes half the time.

    >>> wants_gradient(torch.ones(3), None), wants_gradient(torch.ones(3, requires_grad=True))
    (False, True)
    """
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    if not torch.is_grad_enabled():
        return False
    return any(one is not None and one.requires_grad for one in operands)


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory holds its values: a copy of a view that negates."""
    plain = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided
    return tensor.resolve_neg() if plain and tensor.is_neg() else tensor


def check(tensor: torch.Tensor, operator: str, name: str) -> None:
    """Raise Error where the tensor is refused."""
    reason = refusal(tensor)
    if reason is not None:
        raise Error(Code.invalid_argument, f"{operator}: {name} {reason}", operator=operator)


def dtype(tensor: torch.Tensor, operator: str, name: str) -> Dtype:
    """plait's name of the tensor's dtype."""
    known = DTYPES.get(tensor.dtype)
    if known is None:
        raise Error(
            Code.invalid_argument,
            f"{operator}: {name} is {tensor.dtype}; "
            f"plait computes with {', '.join(map(str, DTYPES))}",
            operator=operator,
        )
    return known


def movable(tensor: torch.Tensor) -> tuple[int, Dtype]:
    """How many elements of which dtype are moved for this tensor.

    What plait does not compute with, it moves by the byte.
    """
    known = DTYPES.get(tensor.dtype)
    if known is not None:
        return tensor.numel(), known
    return tensor.numel() * tensor.element_size(), Dtype.s8
