"""Gradients that are added to a parameter's `main_grad`, for trainers with their own buffers."""

from typing import Any

import torch

from plait.errors import refuse
from plait.torch.rows import check_matrix


def main_grad_of(parameter: Any, operator: str) -> torch.Tensor:
    """Return a parameter's main_grad, or raise Error where a gradient can't be added to it."""
    main_grad = _given(parameter, operator)
    check_matrix(main_grad, operator, "main_grad")
    if main_grad.shape != parameter.shape or not main_grad.is_contiguous():
        refuse(
            operator,
            f"main_grad is {list(main_grad.shape)} with strides {list(main_grad.stride())}, and "
            f"the weight is {list(parameter.shape)}; it must be contiguous and as large",
        )
    return main_grad


def main_grad_on(device: torch.device, parameter: Any, operator: str) -> torch.Tensor:
    """Return a parameter's main_grad for torch's own product, which takes any strides."""
    main_grad = _given(parameter, operator)
    if main_grad.device != device:
        refuse(operator, f"main_grad is on {main_grad.device}, and the weight on {device}")
    if main_grad.shape != parameter.shape:
        refuse(
            operator,
            f"main_grad is {list(main_grad.shape)}, and the weight {list(parameter.shape)}",
        )
    return main_grad


def _given(parameter: Any, operator: str) -> torch.Tensor:
    main_grad: object = getattr(parameter, "main_grad", None)
    if main_grad is None:
        refuse(operator, "accumulate_into_main_grad is set, and the weight has no main_grad")
    if not isinstance(main_grad, torch.Tensor):
        refuse(operator, f"main_grad is of type {type(main_grad).__name__}, not a tensor")
    return main_grad


def placeholder(parameter: Any, weight: torch.Tensor) -> torch.Tensor | None:
    """Return what autograd is given where main_grad has the gradient.

    A trainer that sets `grad_added_to_main_grad` wants hooks of the parameter to run, and so a
    tensor; its values are looked at only where `zero_out_wgrad` is set.
    """
    if not hasattr(parameter, "grad_added_to_main_grad"):
        return None
    parameter.grad_added_to_main_grad = True
    zero = getattr(parameter, "zero_out_wgrad", False)
    return torch.zeros_like(weight) if zero else torch.empty_like(weight)
