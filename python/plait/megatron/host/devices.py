"""Tensors that are asked for on "cuda" are made on the CPU.

Functions that make tensors, or move them, are replaced in the modules and the class where programs
look them up. A mode of torch's functions would see every call, and take 2 microseconds of each.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.jit import _builtins
from torch.utils import _device

_MAKERS = "empty_like full_like normal ones_like rand_like randint_like randn_like zeros_like"
_MAKERS_OF_TENSORS = "new_empty new_empty_strided new_full new_ones new_tensor new_zeros"


def _on_cpu(place: Any) -> Any:
    """Return the CPU for a device of CUDA, which a number means too; all else as it is."""
    if isinstance(place, int) and not isinstance(place, bool):
        return "cpu"
    if isinstance(place, str):
        return "cpu" if place.startswith("cuda") else place
    if isinstance(place, torch.device) and place.type == "cuda":
        return torch.device("cpu")
    return place


def _with_cpu(kwargs: dict[str, Any]) -> dict[str, Any]:
    if "device" in kwargs:
        kwargs["device"] = _on_cpu(kwargs["device"])
    return kwargs


def _stay(tensor: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return tensor


def _nothing(tensor: torch.Tensor, stream: object) -> None:
    pass


def _to(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, *map(_on_cpu, args[:1]), *args[1:], **_with_cpu(kwargs))

    return to


def _type(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def named(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Name a tensor's kind as Megatron's optimizers expect it; they refuse the CPU's names."""
        found = original(tensor, *args, **kwargs)
        return found.replace("torch.", "torch.cuda.", 1) if isinstance(found, str) else found

    return named


def _maker(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        return original(*args, **_with_cpu(kwargs))

    return make


def _register(original: Callable[..., Any], made: Callable[..., Any]) -> None:
    """Let TorchScript compile calls of the new function as those of the old one."""
    operator = _builtins._find_builtin(original)
    if operator is not None:
        _builtins._register_builtin(made, operator)


def makers() -> Iterator[tuple[Any, str]]:
    """Yield the functions that take a device, each as its owner and its name."""
    known = _device._device_constructors()  # those of torch.set_default_device
    for owner in (torch, torch.fft, torch.nested):
        for name, value in list(vars(owner).items()):
            if callable(value) and _is_one_of(value, known):
                yield owner, name
    yield from ((torch, name) for name in _MAKERS.split())
    yield from ((torch.Tensor, name) for name in _MAKERS_OF_TENSORS.split())


def _is_one_of(value: Any, known: set[Any]) -> bool:
    return any(value is one for one in known)  # some values have no hash


def _replace_default() -> None:
    """Let `with torch.device("cuda"):` and torch.set_default_device("cuda") mean the CPU."""
    begin = _device.DeviceContext.__init__

    @functools.wraps(begin)
    def __init__(self: Any, device: Any) -> None:
        begin(self, _on_cpu(torch.device(device)))

    vars(_device)["DeviceContext"].__init__ = __init__


def stand_in() -> None:
    """Replace devices from now on."""
    for owner, name in list(makers()):
        original = getattr(owner, name)
        made = _maker(original)
        _register(original, made)
        setattr(owner, name, made)
    tensor: Any = torch.Tensor
    tensor.cuda = tensor.pin_memory = _stay
    tensor.record_stream = _nothing
    tensor.to, tensor.type = _to(tensor.to), _type(tensor.type)
    module: Any = torch.nn.Module
    module.to = _to(module.to)
    _replace_default()
