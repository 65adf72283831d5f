"""Calls of operators through torch: exported, traced, with hooks, and round its dispatcher."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import OPERATORS, agree, both
from torch import nn
from torch._functorch.aot_autograd import aot_export_module
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import plait
import plait.torch as pt


def name_of(operator: Any) -> str:
    name: str = operator.__name__
    return name


@pytest.mark.parametrize("operator", OPERATORS, ids=name_of)
def test_exports_as_one_node(operator: Callable[..., torch.Tensor]) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return operator(x, w)

    x, w = torch.randn(4, 6), torch.randn(3, 6)
    program = torch.export.export(Module(), (x, w))
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert targets == [f"plait.{name_of(operator)}.default"]
    agree(torch.equal(program.module()(x, w), operator(x, w)), "the exported program differs")


def export(model: nn.Module, x: torch.Tensor) -> Any:
    return torch.export.export(model, (x,))


def trace_by_jit(model: nn.Module, x: torch.Tensor) -> Any:
    return torch.jit.trace(model, (x,), check_trace=False)


def trace_by_name(model: nn.Module, x: torch.Tensor) -> Any:
    return torch.fx.symbolic_trace(model)


def trace_values(model: nn.Module, x: torch.Tensor) -> Any:
    return make_fx(model)(x)


def trace_functions(model: nn.Module, x: torch.Tensor) -> Any:
    return aot_export_module(model, (x,), trace_joint=False)


@pytest.mark.parametrize("is_quantised", [False, True], ids=["plain", "quantised"])
@pytest.mark.parametrize(
    "trace", [export, trace_by_jit, trace_by_name, trace_values, trace_functions], ids=name_of
)
def test_layers_are_not_traced(
    trace: Callable[[nn.Module, torch.Tensor], Any], is_quantised: bool
) -> None:
    """A layer's computation is in no graph: without a refusal its result would be anything."""
    for layer in both():
        layer.requires_grad_(False)
        if is_quantised:
            layer.quantize("s8")
        with pytest.raises(plait.Error, match="layers can't be exported or traced; operators such"):
            trace(layer, torch.ones(2, layer.in_features))


class Watching(TorchDispatchMode):
    """Sees what torch's dispatcher calls, and changes nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.called: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("has_bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("gathered", [False, True], ids=["one", "pair"])
@pytest.mark.parametrize("operator", OPERATORS, ids=name_of)
def test_both_ways_to_a_gradient(operator: Any, gathered: bool, has_bias: bool) -> None:
    """Calls of plain tensors go round torch's dispatcher, which takes most of a small call."""
    if gathered and operator is not pt.all_gather_matmul:
        return
    name = name_of(operator)
    how = {"gathered": True} if gathered else {}
    generator = torch.Generator().manual_seed(3)
    x, w = torch.randn(4, 6, generator=generator), torch.randn(5, 6, generator=generator)
    bias = torch.randn(5, generator=generator) if has_bias else None
    leaves = [one.requires_grad_() for one in (x, w, bias) if one is not None]

    def step(call: Callable[..., Any]) -> tuple[str, list[torch.Tensor]]:
        found = call()
        outs = found if gathered else (found,)
        grads = torch.autograd.grad(sum(out.square().sum() for out in outs), leaves)
        return outs[0].grad_fn.name(), [*(out.detach() for out in outs), *grads]

    rows = [-1] if operator in (pt.all_gather_matmul, pt.matmul_all_gather) else []
    by_torch = getattr(torch.ops.plait, f"{name}_gathered" if gathered else name)
    assert dist.group.WORLD is not None
    named = (dist.group.WORLD.group_name, "", 0, "", False, *rows)
    watching = Watching()
    with watching:
        generated, expected = step(lambda: operator(x, w, bias, **how))
    assert any(name in called for called in watching.called)
    assert "Generated" in generated
    for call in (lambda: operator(x, w, bias, **how), lambda: by_torch(x, w, bias, *named)):
        own, found = step(call)
        assert own.startswith(name)
        agree(all(map(torch.equal, found, expected)), f"{own} differs from {generated}")


@pytest.mark.parametrize("operator", OPERATORS, ids=name_of)
def test_hooks_of_saved_tensors(operator: Callable[..., torch.Tensor]) -> None:
    """Hooks may keep saved tensors elsewhere: backward takes those that they return."""
    x, w = torch.randn(4, 6, requires_grad=True), torch.randn(5, 6, requires_grad=True)
    expected = torch.autograd.grad(operator(x, w).square().sum(), (x, w))
    saved: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor.clone()

    for hooks in (
        torch.autograd.graph.save_on_cpu(),
        torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept),
    ):
        with hooks:
            out = operator(x, w)
        found = torch.autograd.grad(out.square().sum(), (x, w))
        agree(all(map(torch.equal, found, expected)), "other gradients with hooks")
    assert len(saved) >= 2


def test_a_report_of_operators_has_no_gradients() -> None:
    pt.forget_report()
    for _ in range(5):  # the second and the fourth call are traced
        pt.matmul_all_reduce(torch.ones(64, 64), torch.ones(64, 64))
    operators = {row.operator for row in pt.report().rows}
    agree(operators == {"matmul_all_reduce"}, str(operators))
