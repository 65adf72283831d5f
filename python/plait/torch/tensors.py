"""Tensors as memory: address, dtype, number of elements; and what is refused, in words."""

from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.fx import Proxy

from plait import _native
from plait._native import Code, Dtype
from plait.errors import Error, refuse

DTYPES = {
    torch.float32: Dtype.f32,
    torch.bfloat16: Dtype.bf16,
    torch.float16: Dtype.f16,
    torch.int8: Dtype.s8,
}
# Looking for these in torch takes as long as calling them.
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_tracer = torch._C._get_tracing_state
_transform = torch._C._functorch.peek_interpreter_stack
_FLOATS = frozenset((torch.float32, torch.bfloat16, torch.float16))
PLAIN = (torch.Tensor, torch.nn.Parameter)
# The classes that tracers pass in place of tensors, and the mode in which they pass real ones.
_STAND_INS = (FakeTensor, FunctionalTensor, Proxy)
_PROXIES = torch._C._TorchDispatchModeKey.PROXY
# How the native module reads tensors; see docs/design/0027-tensors-of-torch.md.
# torch.compile() makes its tensors by the last function, which not every torch has.
TORCH = _native._TorchTensors(
    *PLAIN, torch.is_grad_enabled, getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None)
)
# Asks for all that has to see each call of torch, and for autocast on any device.
MODES = _native._TorchModes(
    (_dispatch_modes, _function_modes, _tracer, _transform, torch._C._is_any_autocast_enabled),
    forward_ad,
)


def is_dtensor(tensor: object) -> bool:
    """Say whether it is a DTensor, whose module takes as long to import as the rest of torch."""
    return type(tensor) not in PLAIN and hasattr(tensor, "to_local")


def refusal(tensor: torch.Tensor, *, on_gpu: bool = False) -> str | None:
    """Why plait cannot read this tensor's memory; None where it can.

    `on_gpu`: the call is served on NVIDIA's GPUs too.

    >>> refusal(torch.ones(3)), refusal(torch.ones(3, device="meta"))
    (None, 'is on meta; plait computes on cpu')
    """
    if type(tensor) not in PLAIN:
        part = ", such as its local part" if is_dtensor(tensor) else ""
        return f"is a {type(tensor).__name__}; plait takes plain tensors{part}"
    if not tensor.is_cpu and not (on_gpu and tensor.is_cuda):
        return refusal_of_device(tensor.device)
    if tensor.layout != torch.strided:
        return f"is {tensor.layout}; plait takes strided tensors"
    if tensor.is_nested:
        return "is nested; plait takes tensors whose rows are of one length"
    if tensor.is_conj() or tensor.is_neg():
        return "is a view that conjugates or negates; resolve_conj() and resolve_neg() copy it"
    if has_tangent(tensor):
        return _TANGENT
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return _WRAPPED
    return None


def refusal_of_device(device: torch.device) -> str:
    """Why a call does not read memory of a device other than the CPU.

    >>> refusal_of_device(torch.device("cuda:0"))
    'is on cuda:0; this call computes on cpu, and on GPUs there are operators and layers of plain \
weights'
    """
    if device.type != "cuda":
        return f"is on {device}; plait computes on cpu"
    return (
        f"is on {device}; this call computes on cpu, and on GPUs there are operators and layers "
        "of plain weights"
    )


_WRAPPED = "is wrapped by torch.func, whose transforms plait does not serve; use backward()"
_TANGENT = "has a tangent, and plait has no derivatives of forward mode; use backward()"


def has_tangent(tensor: torch.Tensor) -> bool:
    """Say whether forward-mode differentiation has to see what is made of it.

    >>> has_tangent(torch.ones(3))
    False
    """
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


def refuse_tangents(operator: str, operands: Mapping[str, torch.Tensor | None]) -> None:
    """Raise Error where an operand has a tangent: that of the result would be missing."""
    if forward_ad._current_level < 0:
        return
    for name, tensor in operands.items():
        if tensor is not None and has_tangent(tensor):
            refuse(operator, f"{name} {_TANGENT}")


def refuse_transforms(operator: str, operands: Mapping[str, torch.Tensor | None]) -> None:
    """Raise Error where a transform of torch.func has to see what an operand becomes."""
    refuse_tangents(operator, operands)
    if _transform() is None:
        return
    for name, tensor in operands.items():
        if tensor is not None and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            refuse(operator, f"{name} {_WRAPPED}")


def refuse_tracing(operator: str, x: object) -> None:
    """Raise Error where a layer is exported or traced: the graph would lack what it computes.

    >>> refuse_tracing("column_parallel_linear", torch.ones(3))
    """
    is_traced = (
        isinstance(x, _STAND_INS)
        or _tracer() is not None
        or (_dispatch_modes() > 0 and torch._C._get_dispatch_mode(_PROXIES) is not None)
    )
    if is_traced:
        refuse(
            operator,
            "layers can't be exported or traced; operators such as plait.torch.matmul_all_reduce "
            "can",
        )


def is_plain(tensor: Any) -> bool:
    """Say whether it is a tensor whose memory holds numbers that products take.

    It asks less than refusal(): tensors of these dtypes are no views that conjugate.

    >>> is_plain(torch.ones(3)), is_plain(torch.ones(3, dtype=torch.int64))
    (True, False)
    """
    return (
        type(tensor) in PLAIN
        and tensor.dtype in _FLOATS
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_neg()
    )


def are_for_kernels(x: object, weight: object, bias: object) -> bool:
    """Say whether these are plain tensors and no bias or a plain one, which nothing traces."""
    return (
        is_plain(x) and is_plain(weight) and (bias is None or is_plain(bias)) and not is_watched()
    )


def is_on_gpu(*operands: object) -> bool:
    """Say whether one of these is a tensor on a GPU of NVIDIA's.

    >>> is_on_gpu(torch.ones(3), None)
    False
    """
    return any(isinstance(one, torch.Tensor) and one.is_cuda for one in operands)


def is_transformed() -> bool:
    """Say whether a tracer or a transform of functions is at work, as on all ranks.

    >>> is_transformed()
    False
    """
    return not (_tracer() is None and _transform() is None and forward_ad._current_level < 0)


def is_watched() -> bool:
    """Say whether a mode, a tracer or a transform of functions has to see each call of torch.

    >>> is_watched()
    False
    """
    return _dispatch_modes() != 0 or _function_modes() != 0 or is_transformed()


def wants_gradient(*operands: torch.Tensor | None) -> bool:
    """Say whether autograd, or a transform of functions, has to see what is made of these.

    Where it has not, a call that goes round it takes half the time.

    >>> wants_gradient(torch.ones(3), None), wants_gradient(torch.ones(3, requires_grad=True))
    (False, True)
    """
    return _transform() is not None or require_gradients(*operands)


def require_gradients(*operands: torch.Tensor | None) -> bool:
    """Say whether autograd has to see what is made of these.

    >>> require_gradients(torch.ones(3), None), require_gradients(torch.ones(3, requires_grad=True))
    (False, True)
    """
    return torch.is_grad_enabled() and bool(torch._C._any_requires_grad(*operands))


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory holds its values: a copy of a view that negates."""
    plain = isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided
    return tensor.resolve_neg() if plain and tensor.is_neg() else tensor


def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return an operand as autocast makes it: float64 and what has no floats stay as they are.

    >>> [cast(torch.ones(1, dtype=one), torch.bfloat16).dtype for one in (torch.half, torch.int8)]
    [torch.bfloat16, torch.int8]
    """
    if not tensor.is_floating_point() or tensor.dtype is torch.float64:
        return tensor
    return tensor.to(dtype)


def by_autocast(
    x: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return what a layer multiplies and adds: in autocast's dtype where that is on."""
    bias = None if bias is None else resolved(bias)
    if not torch.is_autocast_enabled("cpu"):
        return x, bias
    dtype = torch.get_autocast_dtype("cpu")
    return cast(x, dtype), None if bias is None else cast(bias, dtype)


def check(tensor: torch.Tensor, operator: str, name: str, *, on_gpu: bool = False) -> None:
    """Raise Error where the tensor is refused."""
    reason = refusal(tensor, on_gpu=on_gpu)
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
