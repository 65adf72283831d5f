"""Layers' calls that the native layer makes by itself: the same bits as of those that check all."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree
from torch.utils.flop_counter import FlopCounterMode

import plait
import plait.torch as pt
from plait.torch import linear
from plait.torch.weights import Owner

KINDS: dict[str, Callable[..., torch.Tensor]] = {
    "column": pt.column_parallel_linear,
    "row": pt.row_parallel_linear,
}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(params=KINDS)
def layer(request: pytest.FixtureRequest) -> Callable[..., torch.Tensor]:
    """Return a layer as a function; its calls without an owner are never direct."""
    return KINDS[request.param]


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@contextlib.contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the calls that check everything."""
    made, apply = [0], linear._apply

    def counting(*operands: Any) -> torch.Tensor:
        made[0] += 1
        return apply(*operands)

    with monkeypatch.context() as patch:
        patch.setattr(linear, "_apply", counting)
        yield made


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
def test_bits(layer: Any, dtype: torch.dtype, bias: bool, fixed: bool, monkeypatch: Any) -> None:
    weight = torch.randn(24, 40).to(dtype)
    added = torch.randn(24).to(dtype) if bias else None
    owner, options = Owner(), pt.Options(fixed_weights=fixed)
    layer(torch.ones(1, 40, dtype=dtype), weight, added, layer=owner, options=options)
    with counted(monkeypatch) as made:
        for shape in [(40,), (1, 40), (3, 40), (1, 1, 40), (2, 3, 40), (2, 1, 2, 40)]:
            x = torch.randn(shape).to(dtype)
            found = layer(x, weight, added, layer=owner, options=options)
            agree(made[0] == 0, f"a call of {list(shape)} was not direct")
            expected = layer(x, weight, added, options=options)
            made[0] = 0
            agree(torch.equal(found, expected), f"{list(shape)} has other bits")
            agree(found.shape == expected.shape, f"{list(found.shape)}, not {list(expected.shape)}")


def test_rows_that_lie_apart(layer: Any, monkeypatch: Any) -> None:
    weight, owner = torch.randn(24, 40), Owner()
    wide = torch.randn(4, 6, 80)
    layer(wide[0, :, :40].contiguous(), weight, layer=owner)
    # Rows with gaps between them are rows; columns, and dimensions in another order, are copied.
    for x, is_direct in [
        (wide[0, :, :40], True),
        (wide[:, 0, :40], True),
        (wide[:, :, :40], True),
        (wide[:, :, ::2], False),
        (wide[:, :, :40].transpose(0, 1), False),
        (wide[1, :1, :40].expand(3, 40), False),
    ]:
        with counted(monkeypatch) as made:
            found = layer(x, weight, layer=owner)
        agree((made[0] == 0) == is_direct, f"{x.shape}, {x.stride()}: direct is not {is_direct}")
        agree(torch.equal(found, layer(x.contiguous(), weight)), f"{x.shape}, {x.stride()}")


def test_weights_that_change(layer: Any) -> None:
    owner, x = Owner(), torch.randn(2, 40)
    weight = torch.randn(24, 40)
    for _ in range(3):
        layer(x, weight, layer=owner)
    weight.data.mul_(2)  # unseen by autograd
    agree(torch.equal(layer(x, weight, layer=owner), layer(x, weight)), "an old weight")
    for other in [torch.randn(30, 40), torch.randn(24, 40).t().contiguous().t()]:
        for _ in range(2):
            agree(torch.equal(layer(x, other, layer=owner), layer(x, other)), "another weight")
    half, less = x.bfloat16(), weight.bfloat16()
    for _ in range(2):
        agree(torch.equal(layer(half, less, layer=owner), layer(half, less)), "another dtype")


def test_modules_that_change(layer: Any, monkeypatch: Any) -> None:
    kind = pt.ColumnParallelLinear if layer is pt.column_parallel_linear else pt.RowParallelLinear
    module: Any = kind.from_linear(torch.nn.Linear(40, 24)).requires_grad_(False)

    def check(what: str, is_direct: bool, dtype: torch.dtype = torch.float32) -> None:
        x = torch.randn(2, module.in_features).to(dtype)
        with counted(monkeypatch) as made:
            found = module(x)
        agree((made[0] == 0) == is_direct, f"{what}: direct is not {is_direct}")
        agree(torch.equal(found, layer(x, module.weight, module.bias)), f"{what}: other bits")

    check("the first call", False)
    check("the second", True)
    module.weight.data.mul_(2)  # unseen by autograd
    check("written to", True)
    module.weight.data = torch.randn(module.weight.shape)
    check("other data", True)
    module.bias = torch.nn.Parameter(torch.randn(module.out_features))
    check("another bias", True)
    module.bias = None
    check("no bias", True)
    called: list[int] = []
    module.register_forward_hook(lambda *_: called.append(1))
    check("a hook", True)
    agree(called == [1], f"the hook was called {len(called)} times")
    torch.nn.utils.parametrizations.weight_norm(module)
    check("a weight that is computed", True)
    module.options = pt.Options(schedule="serial")
    check("other options", False)
    torch.nn.utils.parametrize.remove_parametrizations(module, "weight")
    module.bfloat16()
    check("another dtype", False, torch.bfloat16)
    check("another dtype, once more", True, torch.bfloat16)


def test_other_options_and_groups(layer: Any, monkeypatch: Any) -> None:
    """Equal options made anew are the same ones; an owner's other calls are made as they are."""
    owner, x, weight = Owner(), torch.randn(2, 40), torch.randn(24, 40)
    others = dist.new_group()
    calls: list[tuple[dict[str, Any], bool]] = [
        ({"options": pt.Options(schedule="serial")}, False),
        ({"options": pt.Options(schedule="serial")}, True),
        ({}, False),
        ({}, True),
        ({"group": others}, False),
        ({"group": others}, True),
        ({"options": pt.Options(schedule="serial")}, False),
    ]
    expected = layer(x, weight)
    for how, is_direct in calls:
        with counted(monkeypatch) as made:
            found = layer(x, weight, layer=owner, **how)
        agree((made[0] == 0) == is_direct, f"{how}: direct is not {is_direct}")
        agree(torch.equal(found, expected), f"{how}: other bits")
    layer(x, weight, layer=owner, group=others)
    dist.destroy_process_group(others)
    with pytest.raises(plait.Error, match="was destroyed"):
        layer(x, weight, layer=owner, group=others)


def test_gradients_and_modes(layer: Any, monkeypatch: Any) -> None:
    owner, x = Owner(), torch.randn(2, 40)
    weight = torch.randn(24, 40, requires_grad=True)
    layer(x, weight, layer=owner)
    with counted(monkeypatch) as made:
        layer(x, weight, layer=owner)
        agree(made[0] == 0, "it was not direct")
        with torch.enable_grad():
            out = layer(x, weight, layer=owner)
            agree(made[0] == 1 and out.requires_grad, "the result has no graph")
            out.sum().backward()
            frozen = layer(x.requires_grad_(), weight.detach(), layer=owner)
            agree(made[0] == 2 and frozen.requires_grad, "x gets no gradient")
        with torch.autocast("cpu", torch.bfloat16):
            agree(layer(x, weight, layer=owner).dtype is torch.bfloat16, "autocast was not seen")
        with FlopCounterMode(display=False) as flops:
            layer(x, weight, layer=owner)
        agree(flops.get_total_flops() == 2 * 2 * 24 * 40, "the product was not counted")


def test_what_watches_sees_the_call(layer: Any, monkeypatch: Any) -> None:
    owner, x, weight = Owner(), torch.randn(2, 40), torch.randn(24, 40)
    expected = layer(x, weight, layer=owner)
    with counted(monkeypatch) as made:
        with torch.overrides.BaseTorchFunctionMode():
            agree(torch.equal(layer(x, weight, layer=owner), expected), "a mode of functions")
        agree(made[0] == 1, "a mode of functions was not seen")
        with torch.autograd.forward_ad.dual_level():
            agree(torch.equal(layer(x, weight, layer=owner), expected), "forward mode")
        agree(made[0] == 2, "forward mode was not seen")
        with pytest.raises(RuntimeError, match="vmap"):  # which layers don't serve
            torch.vmap(lambda _: layer(x, weight, layer=owner))(torch.zeros(2))
        agree(made[0] == 3, "a transform was not seen")
        layer(x, weight, layer=owner)
        agree(made[0] == 3, "it was not direct")


def test_the_report_sees_them(layer: Any) -> None:
    owner, x, weight = Owner(), torch.randn(2, 40), torch.randn(24, 40)
    layer(x, weight, layer=owner)
    pt.forget_report()
    for _ in range(4):
        layer(x, weight, layer=owner)
    report = pt.report()
    if layer is pt.row_parallel_linear and pt.communicator().world > 1:
        (row,) = report.rows
        agree((row.calls, row.traced) == (4, 2), str(row))


def test_what_is_refused_is_refused_in_words(layer: Any) -> None:
    owner, weight = Owner(), torch.randn(24, 40)
    layer(torch.randn(2, 40), weight, layer=owner)
    for x, sentence in [
        (torch.randn(2, 41), "the last dimensions must be equal"),
        (torch.randn(2, 40, device="meta"), "is on meta"),
        (torch.ones(2, 40, dtype=torch.int64), "is torch.int64"),
        ([0.0] * 40, "is a list; plait takes plain tensors"),
    ]:
        for grad in False, True:
            with torch.set_grad_enabled(grad), pytest.raises(plait.Error, match=sentence):
                layer(x, weight, layer=owner)
