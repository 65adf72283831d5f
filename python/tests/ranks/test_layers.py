"""The two layers: against one process, in every schedule, and as trainers use them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import UNIT, Estimate, agree, bound, known, product, shard, whole_and_parts
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


def flat(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, x.shape[-1])


# gelu's derivative is below 1.13 and its second one below 0.8. torch computes both in f32 with an
# erf that is one unit in the last place off, and some operations more.
STEEPEST, MOST_CURVED, OF_GELU = 1.13, 0.8, 8 * UNIT[torch.float32]


def gelu(h: Estimate, dtype: torch.dtype) -> Estimate:
    exact = nn.functional.gelu(h.exact)
    off = STEEPEST * h.off + OF_GELU * h.exact.abs()
    return Estimate(exact, off + UNIT[dtype] * (exact.abs() + off))


def through_gelu(grad: Estimate, h: Estimate, dtype: torch.dtype) -> Estimate:
    leaf = h.exact.clone().requires_grad_()
    (slope,) = torch.autograd.grad(nn.functional.gelu(leaf).sum(), leaf)
    exact = grad.exact * slope
    off = STEEPEST * grad.off + (grad.exact.abs() + grad.off) * (MOST_CURVED * h.off + OF_GELU)
    return Estimate(exact, off + UNIT[dtype] * (exact.abs() + off))


def step_in_f64(dtype: torch.dtype) -> dict[str, Estimate]:
    """Compute a training step of the whole MLP in f64, and how far ranks' may be from it."""
    whole = whole_mlp(dtype)
    x, g = (
        known(flat(whole_and_parts((rows_of_all(), BATCH, HIDDEN), dtype, seed)[0]))
        for seed in (4, 5)
    )
    up, down = linear(whole, 0), linear(whole, 2)
    w1, b1, w2, b2 = (known(one.detach()) for one in (up.weight, up.bias, down.weight, down.bias))
    h = product(x, w1.t(), dtype, bias=b1)
    a = gelu(h, dtype)
    grad_h = through_gelu(product(g, w2, dtype), h, dtype)
    ones = known(torch.ones(1, x.exact.shape[0]))
    return {
        "out": product(a, w2.t(), dtype, bias=b2),
        # Each rank's part is rounded before it is summed.
        "x": product(grad_h, w1, dtype, roundings=2),
        "up.weight": product(grad_h.t(), x, dtype),
        "up.bias": product(ones, grad_h, dtype)[0],
        "down.weight": product(g.t(), a, dtype),
        "down.bias": product(ones, g, dtype)[0],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
def test_training_step(sequence: bool, dtype: torch.dtype) -> None:
    whole = whole_mlp(dtype)
    own = slice(None)
    if sequence:
        rows = shard(rows_of_all())
        own = slice(rows.start * BATCH, rows.stop * BATCH)
    inner = shard(INNER)
    mine: dict[str, Any] = {"out": own, "x": own, "up.weight": inner, "up.bias": inner}
    mine |= {"down.weight": (slice(None), inner), "down.bias": slice(None)}
    expected = {name: one[mine[name]] for name, one in step_in_f64(dtype).items()}
    first: dict[str, torch.Tensor] = {}
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
        ours = {"out": flat(out.detach()), "x": flat(x.grad), **gradients(model)}
        first = first or ours
        for name, tensor in ours.items():
            reason = expected[name].why_not(tensor)
            agree(not reason, f"{name} is {reason}")
            agree(torch.equal(tensor, first[name]), f"{name}: {options} has other bits")


@pytest.mark.parametrize("wire", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
def test_wire(sequence: bool, wire: torch.dtype) -> None:
    """The partial sums of a row layer are rounded to the wire, in every schedule alike."""
    whole = linear(whole_mlp(), 2)
    x, _ = whole_and_parts((rows_of_all(), INNER), torch.float32, seed=4)
    own = shard(rows_of_all()) if sequence else slice(None)
    weight, bias = known(whole.weight.detach()), known(whole.bias.detach())
    limit = product(known(x), weight.t(), torch.float32, bias=bias, wire=wire)[own]
    text = {torch.bfloat16: "bf16", torch.float16: "f16"}[wire]
    outs = []
    schedules: tuple[pt.Schedule, ...] = ("serial", "fused", "auto")
    for schedule in schedules:
        options = pt.Options(schedule=schedule, wire=text)
        layer = pt.RowParallelLinear.from_linear(whole, sequence_parallel=sequence, options=options)
        outs.append(layer(x[:, shard(INNER)]).detach())
    agree(not limit.why_not(outs[0]), limit.why_not(outs[0]))
    agree(all(torch.equal(outs[0], other) for other in outs), "schedules differ")
    exactly = pt.RowParallelLinear.from_linear(whole, sequence_parallel=sequence)
    agree(not torch.equal(exactly(x[:, shard(INNER)]), outs[0]), "nothing was rounded")


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
@pytest.mark.parametrize("kind", [pt.ColumnParallelLinear, pt.RowParallelLinear])
def test_skip_bias_add(kind: Any, sequence: bool) -> None:
    """The caller adds the bias, and its gradient goes to the layer's parameter."""
    whole = linear(whole_mlp(), 0)
    plain = kind.from_linear(whole, sequence_parallel=sequence)
    layer = kind.from_linear(whole, sequence_parallel=sequence, skip_bias_add=True)
    bare = kind.from_linear(
        nn.Linear(HIDDEN, INNER, bias=False), sequence_parallel=sequence, skip_bias_add=True
    )
    x = torch.randn(2 * dist.get_world_size(), layer.weight.shape[1])
    out, bias = layer(x)
    agree(bias is layer.bias, "the second is not the layer's bias")
    agree(bare(x)[1] is None, "a layer without a bias has one")
    whole.bias.data.zero_()
    without = kind.from_linear(whole, sequence_parallel=sequence)
    agree(torch.equal(out, without(x)), "the result has a bias in it")
    grad = torch.randn(out.shape)
    (out + bias).backward(grad)
    plain(x).backward(grad)
    for name, own in gradients(layer).items():
        if name == "bias" and kind is pt.RowParallelLinear and sequence:
            own = own.clone()  # of this rank's rows, which the caller adds up
            dist.all_reduce(own)
        other = plain.get_parameter(name).grad
        world = dist.get_world_size()
        limit = 2 * bound(world * grad.abs().sum(0), world * grad.shape[0], torch.float32)
        same = torch.equal(own, other) if name == "weight" else bool((own - other <= limit).all())
        agree(same, f"the gradient of {name} differs")
    layer.requires_grad_(False)
    layer.bias.requires_grad_(False)
    if not sequence:
        layer.quantize("s8")
        agree(layer(x)[1] is layer.bias, "quantised")


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


HOOKS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.numpy().copy(), torch.from_numpy
    ),
    "save_on_cpu": torch.autograd.graph.save_on_cpu,
}


@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS.keys())
def test_saved_tensor_hooks(hooks: Callable[[], Any]) -> None:
    model = Mlp(whole_mlp(), True, pt.Options())
    x, grad = operands(True, torch.float32)
    x.requires_grad_()
    model(x).backward(grad)
    expected = gradients(model)
    model.zero_grad()
    with hooks():
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


@pytest.mark.parametrize("buffer", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_main_grad(dtype: torch.dtype, buffer: torch.dtype) -> None:
    layer = pt.RowParallelLinear.from_linear(
        linear(whole_mlp(dtype), 2), sequence_parallel=True, accumulate_into_main_grad=True
    )
    x = torch.randn(rows_of_all(), layer.weight.shape[1]).to(dtype)
    grad_all, _ = whole_and_parts((rows_of_all(), HIDDEN), dtype, seed=6)
    weight: Any = layer.weight
    weight.main_grad = torch.zeros(weight.shape, dtype=buffer)
    weight.grad_added_to_main_grad = False
    place = weight.main_grad.data_ptr()
    exact = grad_all.double().t() @ x.double()
    sizes = grad_all.double().t().abs() @ x.double().abs()
    limit = torch.zeros_like(sizes)
    for batch in range(1, 4):
        layer(x).backward(grad_all[shard(rows_of_all())])
        # Each sum so far is rounded to the buffer's dtype, and is at most so large.
        limit = limit + bound(sizes, rows_of_all(), torch.float32, 0)
        limit = limit + UNIT[buffer] * (batch * sizes + limit)
        off = (weight.main_grad.double() - batch * exact).abs()
        agree(bool((off <= limit).all()), f"main_grad after {batch}: {off.max()}")
    agree(weight.main_grad.data_ptr() == place, "another buffer")
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
    with pytest.raises(plait.Error, match="it can be differentiated once"):
        grad.sum().backward()


@pytest.mark.parametrize("engine", ["native", "c10d"])
def test_a_penalty_on_the_gradient_of_a_sum_is_refused(engine: Any) -> None:
    options = pt.Options(engine=engine)
    x, w = torch.ones(4, 6, requires_grad=True), torch.ones(8, 6, requires_grad=True)
    for call in (pt.column_parallel_linear, pt.row_parallel_linear):
        out = call(x, w, options=options)
        (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        with pytest.raises(plait.Error, match="it can be differentiated once"):
            (out.sum() + grad.square().sum()).backward()


def test_gradients_that_depend_on_nothing_trained_stay_in_the_graph() -> None:
    x = torch.ones(4, 6, requires_grad=True)
    out = pt.column_parallel_linear(x * x, torch.ones(8, 6))
    (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    world = dist.get_world_size()
    agree(torch.equal(second, torch.full_like(x, 16.0 * world)), "not the second derivative")


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
        ({"1": "colwise"}, "1 is of type GELU"),
        ("auto", "no plan of its own"),
        ("tp", "plan is 'tp'"),
    ):
        with pytest.raises(plait.Error, match=sentence):
            pt.parallelize(copy.deepcopy(whole), bad)


def test_parallelize_by_the_models_own_plan(caplog: pytest.LogCaptureFixture) -> None:
    """A plan as Hugging Face's models bring it: it also names what is left as it is."""
    x, _ = whole_and_parts((5, HIDDEN), torch.float32, seed=3)
    for attribute in ("tp_plan", "_tp_plan"):
        whole: Any = nn.ModuleDict({"layers": nn.ModuleList([whole_mlp(), whole_mlp()])})
        whole["norm"] = nn.LayerNorm(HIDDEN)

        def run(model: Any, x: torch.Tensor) -> torch.Tensor:
            for layer in model["layers"]:
                x = layer(x)
            out: torch.Tensor = model["norm"](x)
            return out

        expected = run(whole, x)
        plan = {"layers.*.0": "colwise", "layers.*.2": "rowwise", "norm": "sequence_parallel"}
        setattr(whole, attribute, {**plan, "layers.*.1": "colwise"})
        shared: Any = pt.parallelize(whole)
        kinds = [type(one) for one in shared["layers"][1]]
        assert kinds == [pt.ColumnParallelLinear, nn.GELU, pt.RowParallelLinear]
        assert isinstance(shared["norm"], nn.LayerNorm)
        assert "layers.0.1 is of type GELU" in caplog.text
        agree(bool((run(shared, x) - expected).abs().max() < 1e-5), attribute)


def test_parallelize_leaves_the_model_whole_where_it_refuses() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    tied = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    tied[1].weight = tied[0].weight

    def two() -> nn.Sequential:
        return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))

    half_meta = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, device="meta"))
    half_double = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8).double())
    both = {"0": "colwise", "1": "rowwise"}
    c10d = pt.Options(engine="c10d")
    cases: list[tuple[nn.Sequential, dict[str, str], dict[str, Any], str]] = [
        (nn.Sequential(nn.Linear(8, 8), Scaled(8, 8)), {"*": "colwise"}, {}, "1 is of type Scaled"),
        (tied, {"*": "colwise"}, {}, "0 shares its weight"),
        (nn.Sequential(nn.Linear(8, 8)), both, {}, "no module is called 1"),
        (two(), {"0": "colwise", "1": "rowise"}, {}, "there is no style 'rowise'"),
        (two(), both, {"weight": "s9"}, "'s9' is no scheme"),
        (two(), both, {"weight": "s8", "options": c10d}, "no products of quantised weights"),
        (half_meta, both, {"weight": "s8"}, "1: weight is on meta"),
        (half_double, both, {}, r"1: weight is torch\.float64"),
    ]
    for model, plan, how, sentence in cases:
        before = list(model)
        with pytest.raises(plait.Error, match=sentence):
            pt.parallelize(model, plan, **how)
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
