"""The two layers: against one process, in every schedule, and as trainers use them."""

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree, shard, whole_and_parts
from torch import nn
from torch.utils.checkpoint import checkpoint

import plait
import plait.torch as pt

HIDDEN, INNER, BATCH = 24, 40, 2


def rows_of_all() -> int:
    return 6 * dist.get_world_size()


class Mlp(nn.Module):
    """A column layer, a nonlinearity, a row layer: shares of two nn.Linear."""

    def __init__(self, whole: nn.Sequential, sequence_parallel: bool, options: pt.Options) -> None:
        super().__init__()
        common: dict[str, Any] = {"sequence_parallel": sequence_parallel, "options": options}
        self.up = pt.ColumnParallelLinear.from_linear(linear(whole, 0), **common)
        self.down = pt.RowParallelLinear.from_linear(linear(whole, 2), **common)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(torch.nn.functional.gelu(self.up(x)))
        return out


def whole_mlp(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(HIDDEN, INNER), nn.GELU(), nn.Linear(INNER, HIDDEN)).to(dtype)


def linear(whole: nn.Sequential, place: int) -> nn.Linear:
    layer = whole[place]
    assert isinstance(layer, nn.Linear)
    return layer


def grad_of(whole: nn.Sequential, place: int, name: str) -> torch.Tensor:
    grad = whole[place].get_parameter(name).grad
    assert grad is not None
    return grad


def operands(sequence: bool, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = whole_and_parts((rows_of_all(), BATCH, HIDDEN), dtype, seed=4)
    grad, _ = whole_and_parts((rows_of_all(), BATCH, HIDDEN), dtype, seed=5)
    own = shard(rows_of_all()) if sequence else slice(None)
    return x[own].clone(), grad[own].clone()


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
def test_training_step(sequence: bool, dtype: torch.dtype) -> None:
    whole = whole_mlp(dtype)
    x_all, _ = whole_and_parts((rows_of_all(), BATCH, HIDDEN), dtype, seed=4)
    grad_all, _ = whole_and_parts((rows_of_all(), BATCH, HIDDEN), dtype, seed=5)
    reference = copy.deepcopy(whole).double()
    x_ref = x_all.double().requires_grad_()
    expected = reference(x_ref)
    expected.backward(grad_all.double())
    own = shard(rows_of_all()) if sequence else slice(None)
    assert x_ref.grad is not None
    inner = shard(INNER)
    theirs = {
        "out": expected[own],
        "x": x_ref.grad[own],
        "up.weight": grad_of(reference, 0, "weight")[inner],
        "up.bias": grad_of(reference, 0, "bias")[inner],
        "down.weight": grad_of(reference, 2, "weight")[:, inner],
        "down.bias": grad_of(reference, 2, "bias"),
    }
    first: dict[str, torch.Tensor] | None = None
    for options in (
        pt.Options(schedule="serial"),
        pt.Options(schedule="pipelined", parts=2),
        pt.Options(schedule="fused"),
        pt.Options(),
    ):
        model = Mlp(whole, sequence, options)
        x, grad = operands(sequence, dtype)
        x.requires_grad_()
        out = model(x)
        out.backward(grad)
        assert x.grad is not None
        ours = {"out": out.detach(), "x": x.grad, **gradients(model)}
        if first is None:
            first = ours
            tolerance = 1e-4 if dtype is torch.float32 else 0.06
            for name, exact in theirs.items():
                off = (ours[name].double() - exact).abs().max() / exact.abs().max()
                agree(bool(off < tolerance), f"{name}: {off} of the largest")
        for name, tensor in first.items():
            agree(torch.equal(tensor, ours[name]), f"{name}: {options} has other bits")


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
def test_checkpointing(sequence: bool, reentrant: bool) -> None:
    model = Mlp(whole_mlp(), sequence, pt.Options(schedule="fused"))
    x, grad = operands(sequence, torch.float32)
    x.requires_grad_()
    model(x).backward(grad)
    expected = gradients(model)
    model.zero_grad()
    # Backward's x is another tensor than forward's, which is gone by then.
    hidden = checkpoint(lambda y: model(y * 1.0), x, use_reentrant=reentrant)
    junk = [torch.full_like(x, float("nan")) for _ in range(8)]
    hidden.backward(grad)
    del junk
    found = gradients(model)
    agree(all(torch.equal(expected[name], found[name]) for name in expected), "gradients differ")


def test_saved_tensor_hooks() -> None:
    model = Mlp(whole_mlp(), True, pt.Options())
    x, grad = operands(True, torch.float32)
    x.requires_grad_()
    model(x).backward(grad)
    expected = gradients(model)
    model.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), torch.from_numpy):
        out = model(x)
    out.backward(grad)
    found = gradients(model)
    agree(all(torch.equal(expected[name], found[name]) for name in expected), "gradients differ")


def test_micro_batches_in_flight() -> None:
    model = Mlp(whole_mlp(), True, pt.Options())
    x, grad = operands(True, torch.float32)
    outs = [model(x * scale) for scale in (1.0, 2.0, 3.0)]
    for out in reversed(outs):
        out.backward(grad)
    together = gradients(model)
    model.zero_grad()
    for scale in (3.0, 2.0, 1.0):
        model(x * scale).backward(grad)
    one_by_one = gradients(model)
    agree(
        all(torch.equal(together[name], one_by_one[name]) for name in together),
        "the order of forwards changes gradients",
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_main_grad(dtype: torch.dtype) -> None:
    layer = pt.RowParallelLinear.from_linear(
        linear(whole_mlp(dtype), 2), sequence_parallel=True, accumulate_into_main_grad=True
    )
    x = torch.randn(rows_of_all(), layer.weight.shape[1]).to(dtype)
    grad = torch.ones(shard(rows_of_all()).stop - shard(rows_of_all()).start, HIDDEN).to(dtype)
    weight: Any = layer.weight
    weight.main_grad = torch.zeros(weight.shape, dtype=torch.float32)
    weight.grad_added_to_main_grad = False
    for _ in range(3):
        layer(x).backward(grad)
    exact = 3 * torch.ones(HIDDEN, rows_of_all()).double() @ x.double()
    agree(bool((weight.main_grad - exact).abs().max() < 1e-3), "main_grad")
    agree(weight.grad_added_to_main_grad, "the flag is not set")


def test_a_weight_that_moves() -> None:
    layer = pt.ColumnParallelLinear.from_linear(linear(whole_mlp(), 0))
    x = torch.randn(4, HIDDEN, generator=torch.Generator().manual_seed(1))
    before = layer(x).detach()
    layer.weight.data = layer.weight.data.clone()  # as an optimizer or DDP does
    agree(torch.equal(layer(x), before), "moved")
    with torch.no_grad():
        packed = layer(x)
        agree(torch.equal(packed, before), "packed")
        layer.weight.mul_(2)
        layer.bias.mul_(2)  # type: ignore[union-attr]
        agree(torch.equal(layer(x), 2 * before), "packed anew after it has changed")


def test_frozen_weight_and_no_grad() -> None:
    whole = whole_mlp()
    model = Mlp(whole, False, pt.Options())
    x, grad = operands(False, torch.float32)
    x.requires_grad_()
    model(x).backward(grad)
    assert x.grad is not None
    expected = x.grad.clone()
    x.grad = None
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    out = model(x)
    out.backward(grad)
    agree(x.grad is not None and torch.equal(x.grad, expected), "a frozen layer's gradient of x")
    with torch.no_grad():
        agree(torch.equal(model(x), out), "no_grad")
    with torch.inference_mode():
        agree(torch.equal(model(x), out), "inference_mode")


def test_autocast() -> None:
    model = Mlp(whole_mlp(), False, pt.Options())
    x, grad = operands(False, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    agree(out.dtype is torch.bfloat16, "autocast")
    out.backward(grad.bfloat16())
    agree(all(g.dtype is torch.float32 for g in gradients(model).values()), "gradients are f32")


def test_double_backward_is_refused() -> None:
    layer = pt.ColumnParallelLinear.from_linear(linear(whole_mlp(), 0))
    x = torch.randn(4, HIDDEN, requires_grad=True)
    (grad,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_uneven_shares() -> None:
    world = dist.get_world_size()
    whole = nn.Linear(world + 1, 2 * world + 1)
    dist.broadcast(whole.weight.data, 0)
    dist.broadcast(whole.bias.data, 0)
    column = pt.ColumnParallelLinear.from_linear(whole, sequence_parallel=True)
    row = pt.RowParallelLinear.from_linear(whole, sequence_parallel=True)
    m = 3 * world + 2
    x, _ = whole_and_parts((m, world + 1), torch.float32, seed=3)
    exact = whole(x)
    off = (column(x[shard(m)], rows=m) - exact[:, shard(2 * world + 1)]).abs().max()
    agree(bool(off < 1e-5), "column")
    off = (row(x[:, shard(world + 1)].contiguous()) - exact[shard(m)]).abs().max()
    agree(bool(off < 1e-5), "row")
    with pytest.raises(plait.Error, match="share evenly"):
        row(torch.ones(world + 1, 2, row.weight.shape[1]))


def test_parallelize() -> None:
    whole = whole_mlp()
    x, _ = whole_and_parts((5, HIDDEN), torch.float32, seed=3)
    expected = whole(x)
    plan = {"0": "colwise", "2": "rowwise"}
    shared = pt.parallelize(copy.deepcopy(whole), plan)
    agree(bool((shared(x) - expected).abs().max() < 1e-5), "colwise and rowwise")
    gathered = pt.parallelize(
        copy.deepcopy(whole), {"0": "colwise_gather_output", "2": "rowwise_split_input"}
    )
    agree(bool((gathered(x) - expected).abs().max() < 1e-5), "gathered and split")
    quantised = pt.parallelize(copy.deepcopy(whole), plan, weight="s8:group=8")
    with torch.no_grad():
        agree(bool((quantised(x) - expected).abs().max() < 0.05), "quantised")
    with pytest.raises(plait.Error, match="gradient"):
        quantised(x.requires_grad_())
    for bad, sentence in (
        ({"5": "colwise"}, "no module is called 5"),
        ({"0": "diagonal"}, "no style 'diagonal'"),
        ({"1": "colwise"}, "1 is a GELU"),
        ("auto", "no plan of its own"),
        ("tp", "plan is 'tp'"),
    ):
        with pytest.raises(plait.Error, match=sentence):
            pt.parallelize(copy.deepcopy(whole), bad)


def test_parallelize_leaves_the_model_whole_where_it_refuses() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    tied = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    tied[1].weight = tied[0].weight
    for model, plan, sentence in (
        (nn.Sequential(nn.Linear(8, 8), Scaled(8, 8)), {"*": "colwise"}, "1 is a Scaled"),
        (tied, {"*": "colwise"}, "0 has its weight in common"),
        (nn.Sequential(nn.Linear(8, 8)), {"0": "colwise", "1": "rowwise"}, "no module is called 1"),
    ):
        before = list(model)
        with pytest.raises(plait.Error, match=sentence):
            pt.parallelize(model, plan)
        assert all(one is other for one, other in zip(before, model, strict=True))


def test_a_packed_weight_that_a_collective_changes() -> None:
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(96, 40, bias=False))
    layer.weight.requires_grad_(False)
    x = torch.ones(2, 96)
    layer(x)
    changed = layer.weight.detach().clone()
    changed[-1, 37] += 1  # one value in thousands
    layer.weight.data.copy_(changed)  # as a collective does, autograd does not count it
    agree(bool((layer(x)[:, -1] - (x @ changed.t())[:, -1]).abs().max() < 1e-4), "stale")


def test_report_has_layers_and_what_their_gradients_wait_for(world: int) -> None:
    pt.forget_report()
    up = pt.ColumnParallelLinear.from_linear(nn.Linear(64, 96 * world))
    down = pt.RowParallelLinear.from_linear(nn.Linear(96 * world, 64))
    for _ in range(2):
        down(up(torch.ones(8, 64, requires_grad=True))).sum().backward()
    rows = {row.operator: row for row in pt.report().rows}
    agree(rows["matmul_all_reduce"].traced == 1, str(rows["matmul_all_reduce"]))
    beside = rows["all_reduce"]
    agree(beside.plan == "beside the weight's gradient" and beside.calls == 1, str(beside))
