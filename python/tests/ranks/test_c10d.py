"""Layers by torch's own product, on torch's collectives or plait's, within a derived bound."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import UNIT, agree, shard, whole_and_parts
from torch import nn
from torch.utils.checkpoint import checkpoint

import plait
import plait.torch as pt

Options = pt.Options


def close(ours: torch.Tensor, exact: torch.Tensor, sizes: torch.Tensor, terms: int) -> str | None:
    """Say how far a result is off where it is beyond (1 + K u32) (1 + u)^(W + 1) - 1.

    Terms are the products in one sum. `sizes` is the sum of their magnitudes, and of the bias's.
    """
    if ours.shape != exact.shape:
        return f"{list(ours.shape)}, not {list(exact.shape)}"
    nu = terms * UNIT[torch.float32]
    relative = (1 + nu / (1 - nu)) * (1 + UNIT[ours.dtype]) ** (dist.get_world_size() + 1) - 1
    over = (ours.double() - exact).abs() - relative * sizes - 2.0**-100
    if over.numel() == 0 or bool((over <= 0).all()):
        return None
    return f"{over.max()} beyond a bound of {(relative * sizes).max()}"


class Case:
    """One layer on one set of sizes: what every rank has alike, and what is right."""

    def __init__(self, m: int, inputs: int, outputs: int, dtype: torch.dtype) -> None:
        self.m, self.inputs, self.outputs, self.dtype = m, inputs, outputs, dtype
        self.linear = nn.Linear(inputs, outputs).to(dtype)
        weight, _ = whole_and_parts((outputs, inputs), dtype, seed=1)
        bias, _ = whole_and_parts((outputs,), dtype, seed=2)
        self.linear.weight.data, self.linear.bias.data = weight, bias
        self.x, _ = whole_and_parts((m, inputs), dtype, seed=3)
        self.grad, _ = whole_and_parts((m, outputs), dtype, seed=4)

    def exact(self, sizes: bool) -> dict[str, torch.Tensor]:
        """Results in f64; with `sizes`, the sums of magnitudes in their place."""
        x, weight, bias, grad = (
            (one.detach().double().abs() if sizes else one.detach().double())
            for one in (self.x, self.linear.weight, self.linear.bias, self.grad)
        )
        return {
            "out": x @ weight.t() + bias,
            "x": grad @ weight,
            "weight": grad.t() @ x,
            "bias": grad.sum(0),
        }

    def terms(self) -> dict[str, int]:
        return {"out": self.inputs + 1, "x": self.outputs, "weight": self.m, "bias": self.m}


def run(kind: str, case: Case, sequence: bool, **common: Any) -> dict[str, torch.Tensor]:
    cls = pt.ColumnParallelLinear if kind == "column" else pt.RowParallelLinear
    layer = cls.from_linear(case.linear, sequence_parallel=sequence, **common)
    rows = shard(case.m) if sequence else slice(None)
    if kind == "column":
        x, grad = case.x[rows], case.grad[:, shard(case.outputs)]
    else:
        x, grad = case.x[:, shard(case.inputs)], case.grad[rows]
    x = x.clone().requires_grad_()
    out = layer(x, rows=case.m) if kind == "column" and sequence else layer(x)
    out.backward(grad)
    grads = (x.grad, layer.weight.grad, layer.bias.grad)  # type: ignore[union-attr]
    assert all(one is not None for one in grads)
    return dict(zip(("out", "x", "weight", "bias"), (out.detach(), *grads), strict=True))


def check(kind: str, case: Case, sequence: bool, ours: dict[str, torch.Tensor]) -> None:
    everything = slice(None)
    rows = shard(case.m) if sequence else everything
    outputs, inputs = shard(case.outputs), shard(case.inputs)
    cuts: dict[str, Any] = (
        {"out": (everything, outputs), "x": rows, "weight": outputs, "bias": outputs}
        if kind == "column"
        else {
            "out": rows,
            "x": (everything, inputs),
            "weight": (everything, inputs),
            "bias": everything,
        }
    )
    exact, sizes = case.exact(False), case.exact(True)
    for name, terms in case.terms().items():
        cut = cuts[name]
        said = close(ours[name], exact[name][cut], sizes[name][cut], terms)
        agree(said is None, f"{name} of the {kind} layer: {said}")


SIZES: dict[str, Callable[[int], tuple[int, int, int]]] = {
    "even": lambda world: (8 * world, 6 * world, 4 * world),
    "uneven": lambda world: (3 * world + 1, 5 * world + 1, 2 * world + 1),
    "fewer rows than ranks": lambda world: (world - 1, 2 * world, 3 * world),
    "one output": lambda world: (world, world, 1),
    "long": lambda world: (16, 700, 300),
}
OPTIONS = [
    Options(engine="c10d", schedule="serial"),
    Options(engine="c10d", schedule="pipelined", parts=3),
    Options(engine="c10d"),
]


@pytest.mark.parametrize("options", OPTIONS, ids=["serial", "pipelined", "default"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
@pytest.mark.parametrize("kind", ["column", "row"])
def test_forward_and_backward(
    kind: str,
    sequence: bool,
    sizes: str,
    dtype: torch.dtype,
    options: Options,
    gloo: dist.ProcessGroup,
) -> None:
    case = Case(*SIZES[sizes](dist.get_world_size()), dtype)
    check(kind, case, sequence, run(kind, case, sequence, options=options, group=gloo))


def test_backend_plait_and_the_default_group() -> None:
    case = Case(*SIZES["uneven"](dist.get_world_size()), torch.float32)
    for kind in ("column", "row"):
        check(kind, case, True, run(kind, case, True, options=OPTIONS[1]))


def test_no_communicator_is_made(gloo: dist.ProcessGroup) -> None:
    group: Any = dist.new_group(backend="gloo")
    case = Case(4, 8, 8, torch.float32)
    run("row", case, False, options=OPTIONS[1], group=group)
    from plait.torch import groups

    agree(group not in groups._communicators, "the engine made a communicator")
    dist.destroy_process_group(group)


def test_three_dimensions_against_native(gloo: dist.ProcessGroup) -> None:
    world = dist.get_world_size()
    linear = Case(1, 6 * world, 5 * world, torch.float32).linear
    x, _ = whole_and_parts((4 * world, 3, 6 * world), torch.float32, seed=8)
    own = shard(4 * world)
    for kind in (pt.ColumnParallelLinear, pt.RowParallelLinear):
        mine = x[own] if kind is pt.ColumnParallelLinear else x[..., shard(6 * world)]
        native, c10d = (
            kind.from_linear(linear, group=gloo, sequence_parallel=True, options=options)(mine)
            for options in (Options(), OPTIONS[1])
        )
        agree(torch.allclose(native, c10d, atol=1e-4), f"{kind.__name__} differs from native")


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant: bool, gloo: dist.ProcessGroup) -> None:
    case = Case(*SIZES["even"](dist.get_world_size()), torch.float32)
    how: dict[str, Any] = {"sequence_parallel": True, "options": OPTIONS[1], "group": gloo}
    layer = pt.ColumnParallelLinear.from_linear(case.linear, **how)
    x = case.x[shard(case.m)].clone().requires_grad_()
    checkpoint(lambda y: layer(y * 1.0), x, use_reentrant=reentrant).square().sum().backward()
    found = [layer.weight.grad, x.grad]
    layer.weight.grad = x.grad = None
    layer(x).square().sum().backward()
    expected = [layer.weight.grad, x.grad]
    same = True
    for one, other in zip(found, expected, strict=True):
        assert one is not None
        assert other is not None
        same = same and torch.equal(one, other)
    agree(same, "gradients differ")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_main_grad(dtype: torch.dtype, gloo: dist.ProcessGroup) -> None:
    case = Case(*SIZES["even"](dist.get_world_size()), dtype)
    expected = run("row", case, True, options=OPTIONS[1], group=gloo)["weight"]
    layer = pt.RowParallelLinear.from_linear(
        case.linear,
        sequence_parallel=True,
        accumulate_into_main_grad=True,
        options=OPTIONS[1],
        group=gloo,
    )
    weight: Any = layer.weight
    weight.main_grad = torch.zeros(weight.shape)
    weight.grad_added_to_main_grad = False
    for _ in range(2):
        layer(case.x[:, shard(case.inputs)]).backward(case.grad[shard(case.m)])
    off = (weight.main_grad - 2 * expected.float()).abs().max()
    agree(bool(off <= 1e-5), f"main_grad is off by {off}")
    agree(weight.grad_added_to_main_grad, "the flag is not set")


def test_frozen_weight_and_autocast(gloo: dist.ProcessGroup) -> None:
    case = Case(*SIZES["even"](dist.get_world_size()), torch.float32)
    layer = pt.RowParallelLinear.from_linear(case.linear, options=OPTIONS[1], group=gloo)
    layer.weight.requires_grad_(False)
    x = case.x[:, shard(case.inputs)].clone().requires_grad_()
    layer(x).backward(case.grad)
    exact, sizes = case.exact(False)["x"], case.exact(True)["x"]
    own = shard(case.inputs)
    assert x.grad is not None
    said = close(x.grad, exact[:, own], sizes[:, own], case.outputs)
    agree(said is None, f"a frozen layer's gradient of x: {said}")
    agree(layer.weight.grad is None, "a frozen weight has a gradient")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        agree(layer(x).dtype is torch.bfloat16, "autocast")


@pytest.mark.parametrize("function", [pt.column_parallel_linear, pt.row_parallel_linear])
def test_calls_are_refused_alike_by_both_engines(function: Any, gloo: dist.ProcessGroup) -> None:
    """All ranks refuse before the first collective, where one of them would wait for the others."""
    weight: Any = nn.Parameter(torch.ones(3, 4))
    how: dict[str, Any] = {"accumulate_into_main_grad": True}
    for options in (Options(), *OPTIONS):
        given = {"options": options, "group": gloo if options.engine == "c10d" else None}
        with pytest.raises(plait.Error, match="x has one dimension, and sequence_parallel needs"):
            function(torch.ones(4), weight, sequence_parallel=True, **given)
        for bad in (torch.ones(1), torch.ones(2, 3)):  # which torch's sums would stretch
            with pytest.raises(plait.Error, match=r"bias is .*, not \[3\]"):
                function(torch.ones(2, 4), weight, bad, **given)
        with pytest.raises(plait.Error, match=f"{function.__name__}: .* has no main_grad"):
            function(torch.ones(2, 4), weight, **how, **given)
        weight.main_grad = torch.ones(4, 4)
        with pytest.raises(plait.Error, match=rf"{function.__name__}: main_grad is \[4, 4\]"):
            function(torch.ones(2, 4), weight, **how, **given)
        del weight.main_grad
        with torch.no_grad():
            function(torch.ones(2, 4), weight, **how, **given)


def test_what_is_refused(gloo: dist.ProcessGroup) -> None:
    for bad, sentence in (
        ({"engine": "gloo"}, "native, c10d"),
        ({"engine": "c10d", "schedule": "fused"}, "serial and pipelined"),
        ({"engine": "c10d", "wire": "bf16"}, "leave wire out"),
    ):
        with pytest.raises(plait.Error, match=sentence):
            Options(**bad)  # type: ignore[arg-type]
    layer = pt.ColumnParallelLinear.from_linear(
        nn.Linear(4, 4), sequence_parallel=True, options=OPTIONS[0], group=gloo
    )
    with pytest.raises(plait.Error, match=r"x has 1 rows, and rank \d+ of \d+ has \d+ of 100$"):
        layer(torch.ones(1, 4), rows=100)
    with pytest.raises(plait.Error, match="the first of several dimensions is 5"):
        layer(torch.ones(2, 3, 4), rows=5 if dist.get_world_size() < 5 else 7)
    with pytest.raises(plait.Error, match="last dimensions must be equal"):
        layer(torch.ones(1, 5))
    with pytest.raises(plait.Error, match=r"x is torch\.float64"):
        layer(torch.ones(1, 4).double())
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(4, 4), options=OPTIONS[0], group=gloo)
    layer.quantize("s8")
    with torch.no_grad(), pytest.raises(plait.Error, match="quantised"):
        layer(torch.ones(1, 4))
