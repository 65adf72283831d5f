"""Which product a layer takes: all ranks the same one, measured once."""

import logging
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree, whole_and_parts
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import plait
import plait.torch as pt
from plait.torch import product
from plait.torch.context import communicator_of

Options = pt.Options


def layer_and_x(**options: Any) -> tuple[pt.RowParallelLinear, torch.Tensor]:
    linear = nn.Linear(24 * dist.get_world_size(), 40)
    weight, _ = whole_and_parts((40, linear.in_features), torch.float32, seed=1)
    linear.weight.data, linear.bias.data = weight, weight[:, 0].clone()
    x, _ = whole_and_parts((16, 24), torch.float32, seed=2)
    return pt.RowParallelLinear.from_linear(linear, options=Options(**options)), x


class Clock:
    """Makes one of the two products look fast on this rank."""

    def __init__(self, is_torch_fast: bool) -> None:
        self.calls, self.now = 0, 0.0
        self.is_torch_fast = is_torch_fast

    def perf_counter(self) -> float:
        is_torch = self.calls // 2 % 2 == 1
        ends = self.calls % 2 == 1
        self.calls += 1
        self.now += (0.1 if is_torch == self.is_torch_fast else 1.0) if ends else 0.0
        return self.now


@pytest.mark.parametrize("rank_0_takes", ["plait", "torch"])
def test_rank_0_decides(rank_0_takes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = (rank_0_takes == "torch") == (dist.get_rank() == 0)
    layer, x = layer_and_x(product="auto")
    expected, _ = layer_and_x(product=rank_0_takes)
    with torch.no_grad(), monkeypatch.context() as patched:
        patched.setattr(product, "time", Clock(mine))
        out = layer(x)
    with torch.no_grad():
        agree(torch.equal(out, expected(x)), "another product was taken")
        pt.forget_report()
        agree(torch.equal(layer(x), out), "the second call took another")
    by_torch = any("by torch's product" in what for what, _ in pt.report().others)
    agree(by_torch == (rank_0_takes == "torch"), str(pt.report()))


def test_each_shape_is_measured_once(caplog: pytest.LogCaptureFixture) -> None:
    layer, x = layer_and_x(product="auto")
    caplog.set_level(logging.INFO, logger="plait.torch")
    lines = []
    for given in (x, x, x[:8], x, x[:8]):
        layer(given).sum().backward()
        lines.append(len(caplog.records))
    with torch.no_grad():  # inference packs the weight, and is another matter
        layer(x)
        layer(x)
    lines.append(len(caplog.records))
    expected = [1, 1, 2, 2, 2, 3] if dist.get_rank() == 0 else [0] * 6
    agree(lines == expected, f"lines after each call: {lines}")
    if dist.get_rank() == 0:
        text = caplog.records[0].getMessage()
        assert "ms with plait's" in text
        assert "row_parallel_linear 40x24 float32, up to 16 rows, training" in text


def test_numbers_of_rows_are_measured_by_powers_of_two(
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch.manual_seed(dist.get_rank())
    layer, x = layer_and_x(product="auto")
    caplog.set_level("INFO", logger="plait.torch")
    lines = []
    with torch.no_grad():
        for rows in (7, 5, 8, 6, 9, 16, 1):
            layer(x[0].repeat(rows, 1))
            lines.append(len(caplog.records))
    expected = [1, 1, 1, 1, 2, 2, 3] if dist.get_rank() == 0 else [0] * 7
    agree(lines == expected, f"lines after each call: {lines}")


def test_the_report_says_what_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["plait.torch.report"]  # plait.torch.report is its function
    monkeypatch.setattr(module, "_by_plait", set())
    monkeypatch.setattr(module, "_comparisons", {})
    sentence = "whether torch's product is faster was not measured for 1 size of layers"
    layer, x = layer_and_x()
    layer(x)
    agree(sentence in str(pt.report()), str(pt.report()))
    agree('Options(product="auto")' in str(pt.report()), "no way out is named")
    layer(torch.cat([x, x]))  # another number of rows
    agree(pt.report().not_compared == 1, str(pt.report()))
    layer, x = layer_and_x(product="auto")
    layer(x)
    agree(pt.report().not_compared == 0, str(pt.report()))
    agree("was not measured" not in str(pt.report()), str(pt.report()))


@pytest.mark.parametrize("faster", ["plait", "torch"])
def test_the_report_says_which_was_faster(faster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = (faster == "torch") == (dist.get_rank() == 0)
    layer, x = layer_and_x(product="auto")
    with torch.no_grad(), monkeypatch.context() as patched:
        patched.setattr(product, "time", Clock(mine))
        layer(x)
    pt.forget_report()  # which forgets calls alone
    found = [one for one in pt.report().comparisons if (one.outputs, one.inputs) == (40, 24)]
    (one,) = (one for one in found if one.rows == 16 and not one.trains)
    agree(one.faster == faster, f"{one}")  # rank 0's times, on all ranks
    agree(abs(one.plait_seconds - (0.1 if faster == "plait" else 1.0)) < 1e-6, f"{one}")
    agree(f"inference: {faster}'s product is faster and taken" in str(pt.report()), "unsaid")


class Seen(TorchDispatchMode):
    """Counts what torch is called for."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **kwargs or {})


def seen_in_training(layer: pt.RowParallelLinear, x: torch.Tensor) -> list[int]:
    """Count what a program's hooks, modes and profilers see of a call."""
    layer.zero_grad()
    packed: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(tensor)
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.profiler.profile() as profiled,
        Seen() as mode,  # type: ignore[no-untyped-call]
    ):
        layer(x).sum().backward()
    return [len(packed), mode.calls, sum(one.count for one in profiled.key_averages())]


def test_measuring_is_not_seen() -> None:
    layer, x = layer_and_x(product="auto")
    first, second = (seen_in_training(layer, x) for _ in range(2))
    agree(first == second, f"seen of the call that measures: {first}, of another: {second}")
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        layer(x[:8])


def test_checkpointing_measures_once() -> None:
    layer, x = layer_and_x(product="auto")
    own = x.clone().requires_grad_()
    checkpoint(layer, own, use_reentrant=False).sum().backward()
    other, _ = layer_and_x()
    theirs = x.clone().requires_grad_()
    other(theirs).sum().backward()
    agree(bool(torch.allclose(own.grad, theirs.grad, atol=1e-4)), "another gradient")  # type: ignore[arg-type]


def test_a_vector_is_one_row_however_many_inputs_a_rank_has() -> None:
    linear = nn.Linear(8 * dist.get_world_size() + 1, 6)  # one rank has 9 inputs, the others 8
    layer = pt.RowParallelLinear.from_linear(linear, options=Options(product="auto"))
    layer(torch.ones(layer.weight.shape[1]))
    known: Any = product._faster[communicator_of(None, "a test")][layer._key]
    rows = [sizes[0] for _, sizes, *_ in known]
    agree(rows == [0], f"measured for rows of up to two to the power of {rows}")


def test_measuring_leaves_no_gradient() -> None:
    torch.manual_seed(dist.get_rank())
    layer, x = layer_and_x(product="auto", schedule="fused")
    other, _ = layer_and_x()
    own = x.clone().requires_grad_()
    layer(own).sum().backward()
    theirs = x.clone().requires_grad_()
    other(theirs).sum().backward()
    for mine, expected in ((own.grad, theirs.grad), (layer.weight.grad, other.weight.grad)):
        assert mine is not None
        assert expected is not None
        off = (mine - expected).abs().max()
        agree(bool(off < 1e-4), f"a gradient is off by {off}")


def test_sequence_parallel_and_uneven_rows() -> None:
    world = dist.get_world_size()
    linear = nn.Linear(8, 4 * world)
    dist.broadcast(linear.weight.data, 0)
    dist.broadcast(linear.bias.data, 0)
    layers = [
        pt.ColumnParallelLinear.from_linear(
            linear, sequence_parallel=True, options=Options(product=one)
        )
        for one in ("plait", "auto")
    ]
    m = 3 * world + 1
    x = torch.ones(m // world + (dist.get_rank() < m % world), 8)
    outs = [layer(x, rows=m) for layer in layers]
    agree(bool(torch.allclose(*outs, atol=1e-5)), "uneven rows")  # type: ignore[misc]


def test_what_is_refused() -> None:
    for bad, sentence in (
        ({"product": "mkl"}, "plait, torch, auto"),
        ({"product": "torch", "schedule": "fused"}, "is serial"),
        ({"product": "torch", "wire": "bf16"}, "leave wire out"),
        ({"product": "auto", "engine": "c10d"}, "leave product out"),
    ):
        with pytest.raises(plait.Error, match=sentence):
            Options(**bad)  # type: ignore[arg-type]
