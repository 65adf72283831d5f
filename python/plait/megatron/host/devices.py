"""Tensors that are asked for on "cuda" are made on the CPU."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def _on_cpu(place: Any) -> Any:
    """Return the CPU for a device of CUDA; all else as it is."""
    if isinstance(place, str):
        return "cpu" if place.startswith("cuda") else place
    if isinstance(place, torch.device) and place.type == "cuda":
        return torch.device("cpu")
    return place


def _stay(tensor: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return tensor


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor.to(*map(_on_cpu, args), **kwargs)


def _type(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Name a tensor's kind as Megatron's optimizers expect it; they refuse the CPU's names."""
    if not args and not kwargs:
        return str(tensor.type()).replace("torch.", "torch.cuda.", 1)
    return tensor.type(*args, **kwargs)


_METHODS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.cuda: _stay,
    torch.Tensor.pin_memory: _stay,
    torch.Tensor.to: _to,
    torch.Tensor.type: _type,
}


class OnCpu(TorchFunctionMode):
    """Replaces devices of CUDA in every call of torch, as torch.set_default_device does."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `func` with devices replaced."""
        if kwargs:
            if "device" in kwargs:
                device = kwargs["device"]
                # A number means a device of CUDA.
                kwargs["device"] = "cpu" if isinstance(device, int) else _on_cpu(device)
            kwargs.pop("pin_memory", None)
        return _METHODS.get(func, func)(*args, **kwargs or {})


def stand_in() -> None:
    """Replace devices from now on, in this thread."""
    enter: Callable[[], Any] = OnCpu().__enter__
    enter()
