"""Gradients that are added to a parameter's `main_grad`, for trainers with their own buffers."""

from typing import Any

import torch


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
