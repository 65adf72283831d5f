"""Gradients of products that have no gradients of their own.

torch's once_differentiable() refuses a second differentiation only where the gradient of the result
requires one. That of a sum does not, but the gradient of x depends on the weight all the same, so
that a penalty on gradients would miss terms in silence.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from plait.errors import refuse

_Gradients = tuple[torch.Tensor | None, ...]
_Backward = Callable[..., _Gradients]


def differentiable_once(
    backward: _Backward, name: str = "", factors: int = 2, *, linear: bool = True
) -> _Backward:
    """Refuse to differentiate again what a backward returns: gradients of x, weight and others.

    `name` is that of the call; without it, the context of the backward has it as `call.name`. The
    first `factors` inputs are multiplied: the gradient of each depends on the others, and unless
    the result is `linear` in each of them, on itself.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: Any) -> _Gradients:
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():  # it is where the program sets create_graph
            return found
        needed = sum(ctx.needs_input_grad[:factors])
        if linear and needed < 2 and not torch._C._any_requires_grad(*grads):
            return found  # they depend on nothing that requires a gradient
        given = [one for one in found if one is not None]
        watched = torch.empty(0, requires_grad=True)
        last = iter(_Last.apply(name or ctx.call.name, watched, *given))  # type: ignore[no-untyped-call]
        return tuple(None if one is None else next(last) for one in found)

    return checked


class _Last(torch.autograd.Function):
    """Tensors as they are, whose gradients are refused."""

    @staticmethod
    def forward(
        ctx: Any, name: str, watched: torch.Tensor, *given: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.name = name
        return given

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        refuse(ctx.name, "its gradient has no gradient: it can be differentiated once")
