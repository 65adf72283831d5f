"""Forward-mode differentiation and the transforms of torch.func, which get a sentence."""

import functools
from collections.abc import Callable

import pytest
import torch
from ranks import agree
from torch.autograd import forward_ad

import plait
import plait.torch as pt

C10D = pt.Options(engine="c10d")
CALLS: list[Callable[..., torch.Tensor]] = [
    pt.matmul_all_reduce,
    pt.column_parallel_linear,
    pt.row_parallel_linear,
    functools.partial(pt.column_parallel_linear, options=C10D),
    functools.partial(pt.row_parallel_linear, options=C10D),
]


def with_tangent(call: Callable[..., torch.Tensor], name: str) -> None:
    """Call with one operand that has a tangent, which the result would be without."""
    operands = {"x": torch.ones(2, 6), "weight": torch.ones(8, 6), "bias": torch.ones(8)}
    tangent = torch.ones_like(operands[name])

    def alone(operand: torch.Tensor) -> torch.Tensor:
        return call(*{**operands, name: operand}.values())

    with pytest.raises(plait.Error, match=f"{name} has a tangent"), forward_ad.dual_level():
        alone(forward_ad.make_dual(operands[name], tangent))
    with pytest.raises(plait.Error, match=f"{name} has a tangent|is wrapped by torch.func"):
        torch.func.jvp(alone, (operands[name],), (tangent,))


@pytest.mark.parametrize("name", ["x", "weight", "bias"])
@pytest.mark.parametrize("call", CALLS)
def test_tangents_are_refused(call: Callable[..., torch.Tensor], name: str) -> None:
    with_tangent(call, name)


@pytest.mark.parametrize("name", ["x", "weight", "bias"])
def test_tangents_are_refused_by_torchs_operators(name: str) -> None:
    with_tangent(lambda *operands: torch.ops.plait.matmul_all_reduce(*operands, ""), name)


def test_without_tangents_forward_mode_changes_nothing() -> None:
    for call in CALLS:
        expected = call(torch.ones(2, 6), torch.ones(8, 6))
        with forward_ad.dual_level():
            found = call(torch.ones(2, 6), torch.ones(8, 6))
        agree(torch.equal(found, expected), "other values")


@pytest.mark.parametrize("call", CALLS)
def test_transforms_that_differentiate_are_refused(call: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(plait.Error, match=r"x is wrapped by torch\.func"):
        torch.func.grad(lambda x: call(x, torch.ones(8, 6)).sum())(torch.ones(2, 6))


@pytest.mark.parametrize("call", CALLS[1:])
def test_layers_are_not_mapped(call: Callable[..., torch.Tensor]) -> None:
    with pytest.raises(plait.Error, match=r"x is wrapped by torch\.func"):
        torch.vmap(lambda x: call(x, torch.ones(8, 6)))(torch.ones(3, 2, 6))


def test_transforms_are_refused_by_torchs_operators() -> None:
    for schedule in ("", "c10d"):
        with pytest.raises(plait.Error, match=r"x is wrapped by torch\.func"):
            torch.func.grad(
                lambda x, schedule=schedule: torch.ops.plait.matmul_all_reduce(
                    x, torch.ones(8, 6), None, "", schedule
                ).sum()
            )(torch.ones(2, 6))
