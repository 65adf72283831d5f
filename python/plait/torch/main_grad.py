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


def weight_gradient(
    parameter: torch.Tensor | None, operator: str, grad_out: torch.Tensor, x: torch.Tensor
) -> torch.Tensor | None:
    """Return torch's product of grad_out transposed by x, or add it to main_grad."""
    if parameter is None:
        return torch.mm(grad_out.t(), x)
    main_grad = main_grad_on(x.device, parameter, operator)
    if main_grad.dtype == x.dtype:
        main_grad.addmm_(grad_out.t(), x)
    elif x.is_cuda and main_grad.dtype == torch.float32:  # a product that is not rounded before
        main_grad.add_(torch.mm(grad_out.t(), x, out_dtype=torch.float32))
    else:
        main_grad.add_(torch.mm(grad_out.t(), x))
    return placeholder(parameter, grad_out.new_empty(grad_out.shape[1], x.shape[1]))
