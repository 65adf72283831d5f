"""Compiled programs whose products and collectives have become plait's operators."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks import UNIT, agree, shard, whole_and_parts
from torch import nn
from torch._inductor import config
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import plait
import plait.torch as pt
from plait.torch import compiler
from plait.torch.compiler import Pass, Report

pytestmark = pytest.mark.long

M, K, N = 8, 24, 20
RAW = torch.ops._c10d_functional
WAIT = RAW.wait_tensor.default
Program = Callable[[torch.Tensor, torch.Tensor, dist.ProcessGroup], Any]


def reduced(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.all_reduce(x @ w.t(), "sum", group) + 1


def reduced_by_rows(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.all_reduce((x @ w.t()).view(2, M // 2, N), "sum", group)


def turned(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.all_reduce(x @ w.reshape(K, N), "sum", group)


def scattered(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.reduce_scatter_tensor(x @ w.t(), "sum", 0, group).relu()


def gathered(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.all_gather_tensor(x, 0, group) @ w.t()


def gathered_twice(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    rows = functional.all_gather_tensor(x, 0, group)
    return rows @ w.t(), rows @ w.exp().t(), rows.sum()


def gathered_with_bias(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    rows = functional.all_gather_tensor(x.view(M // 4, 4, K), 0, group)
    return nn.functional.linear(rows, w, w[:, 0].contiguous())


def largest(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.all_reduce(x @ w.t(), "max", group)


def used_twice(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    product = x @ w.t()
    return functional.all_reduce(product, "sum", group), product.sum()


def biased(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    """Ranks have biases of their own; DTensor gives each a part of one."""
    return functional.all_reduce(nn.functional.linear(x, w, w[:, 0].contiguous()), "sum", group)


def scattered_with_bias(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    product = nn.functional.linear(x.view(2, M // 2, K), w, w[:, 0].contiguous())
    return functional.reduce_scatter_tensor(product, "sum", 1, group)


def scattered_in_the_middle(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.reduce_scatter_tensor((x @ w.t()).view(2, 4, 1, N), "sum", 1, group)


def gathered_in_the_middle(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.all_gather_tensor(x.view(2, M // 2, K), 1, group) @ w.t()


def gathered_in_the_middle_of_one(
    x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup
) -> Any:
    return functional.all_gather_tensor(x.view(1, M, K), 1, group) @ w.t()


def gathered_in_the_middle_twice(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    rows = functional.all_gather_tensor(x.view(2, M // 2, K), 1, group)
    return rows @ w.t(), rows[1], rows.view(-1, K).t() @ rows.view(-1, K)


PROGRAMS: dict[Program, dict[str, int]] = {
    biased: {"matmul_all_reduce": 1},
    scattered_with_bias: {"matmul_reduce_scatter": 1},
    scattered_in_the_middle: {"matmul_reduce_scatter": 1},
    gathered_in_the_middle: {"all_gather_matmul": 1},
    gathered_in_the_middle_of_one: {"all_gather_matmul": 1},
    gathered_in_the_middle_twice: {"all_gather_matmul": 1},
    reduced: {"matmul_all_reduce": 1},
    reduced_by_rows: {"matmul_all_reduce": 1},
    turned: {"matmul_all_reduce": 1},
    scattered: {"matmul_reduce_scatter": 1},
    gathered: {"all_gather_matmul": 1},
    gathered_twice: {"all_gather_matmul": 1},
    gathered_with_bias: {"all_gather_matmul": 1},
    largest: {},
    used_twice: {},
}


class Counted(Pass):
    """A graph that another rank has left in inductor's cache would not be counted again."""

    collectives: tuple[str, ...] = ()  # of torch, in the graphs as they are then

    def __call__(self, graph: torch.fx.Graph) -> None:
        super().__call__(graph)
        waits = graph.find_nodes(op="call_function", target=WAIT)
        self.collectives += tuple(str(node.args[0]) for node in waits)

    def uuid(self) -> None:
        return None


def compiled(program: Any, rewriting: Pass, dynamic: bool = False) -> Any:
    torch._dynamo.reset()
    options: Any = {"post_grad_custom_post_pass": rewriting}
    return torch.compile(program, fullgraph=True, dynamic=dynamic, options=options)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_what_is_rewritten(program: Program, gloo: dist.ProcessGroup) -> None:
    _, xs = whole_and_parts((M, K), torch.float32, seed=1)
    _, ws = whole_and_parts((N, K), torch.float32, seed=2)
    x, w = xs[dist.get_rank()], ws[dist.get_rank()]
    rewriting = Counted(pt.Options(schedule="pipelined", parts=2))
    pt.forget_report()
    with torch.no_grad():
        expected = program(x, w, gloo)
        found = compiled(program, rewriting)(x, w, gloo)
    agree(dict(rewriting.rewritten) == PROGRAMS[program], f"rewritten: {rewriting.rewritten}")
    operators = {row.operator for row in pt.report().rows}
    agree(operators == set(PROGRAMS[program]), f"called: {operators}")
    agree(bool(rewriting.collectives) == (not PROGRAMS[program]), f"{rewriting.collectives} too")
    pairs = (
        zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]
    )
    for theirs, ours in pairs:
        agree(theirs.shape == ours.shape, f"shape {ours.shape}")
        agree(torch.allclose(theirs, ours, atol=1e-4), "values differ")


def viewed_flat(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.all_reduce((x @ w.t()).view(M * N), "sum", group)


def read_before(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    rows = functional.all_gather_tensor(x, 0, group)
    return rows @ (rows.relu().mean() * w.t())


def by_itself(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    rows = functional.all_gather_tensor(x, 0, group)
    return rows @ rows.t()


def sequence_gathered(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    rows = functional.all_gather_tensor(x[:, None], 1, group)
    return rows @ w.t()


def vector_gathered(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    values = functional.all_gather_tensor(x[0, :1].clone(), 0, group)
    return values.view(1, -1) @ w[:, : group.size()].t()


def in_f64(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return reduced(x.double(), w.double(), group)


def gathered_in_f64(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return gathered(x.double(), w.double(), group)


def scaled(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.all_reduce(torch.addmm(w[:, 0], x, w.t(), alpha=2), "sum", group)


def added_to(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.all_reduce(torch.addmm(x[:, :1], x, w.t()), "sum", group)


def with_one_bias(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return functional.all_reduce(torch.addmm(w[0, :1], x, w.t()), "sum", group)


def turned_round(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    upper, lower = (x @ w.t()).split(M // 2)
    return functional.all_reduce(torch.cat([lower, upper]), "sum", group)


def padded(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    """DTensor makes parts alike so, where ranks share a dimension unevenly."""
    rows = nn.functional.pad((x @ w.t())[:-1], (0, 0, 0, 1))
    return functional.reduce_scatter_tensor(rows, "sum", 0, group)


def columns_gathered(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    columns = functional.all_gather_tensor(x, 1, group)
    return columns @ w.t().repeat(group.size(), 1)


VARIES = "its left factor has sizes that vary (torch.compile(dynamic=False) has none)"
LEFT: list[tuple[Program, bool, str]] = [
    (largest, False, "all_reduce: it reduces by 'max', and plait by 'sum'"),
    (used_twice, False, "all_reduce: its product has other readers"),
    (scaled, False, "all_reduce: its product is scaled"),
    (added_to, False, "all_reduce: its bias has 2 dimensions, not 1"),
    (with_one_bias, False, f"all_reduce: its bias has 1 values, not {N}"),
    (
        turned_round,
        False,
        "all_reduce: its product is cut and joined again in an unknown way",
    ),
    (
        padded,
        False,
        "reduce_scatter_tensor: its product is cut and joined again in an unknown way",
    ),
    (
        columns_gathered,
        False,
        "all_gather_into_tensor: it gathers no rows of its product's left factor",
    ),
    (viewed_flat, False, "all_reduce: a view of its product has other columns"),
    (in_f64, False, "all_reduce: its left factor is torch.float64"),
    (reduced, True, f"all_reduce: {VARIES}"),
    (scattered, True, f"reduce_scatter_tensor: {VARIES}"),
    (gathered, True, f"all_gather_into_tensor: {VARIES}"),
    (gathered_in_f64, False, "all_gather_into_tensor: its left factor is torch.float64"),
    (
        by_itself,
        False,
        "all_gather_into_tensor: something else reads the rows of all ranks before the product "
        "can be made",
    ),
    (
        sequence_gathered,
        True,
        "all_gather_into_tensor: it gathers no rows of its product's left factor",
    ),
    (vector_gathered, False, "all_gather_into_tensor: its left factor has 1 dimension"),
    (
        read_before,
        False,
        "all_gather_into_tensor: something else reads the rows of all ranks before the product "
        "can be made",
    ),
]


@pytest.mark.parametrize(
    ("program", "dynamic", "sentence"),
    LEFT,
    ids=lambda one: one.__name__ if callable(one) else None,
)
def test_what_is_left_is_said_once(
    program: Program,
    dynamic: bool,
    sentence: str,
    gloo: dist.ProcessGroup,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, xs = whole_and_parts((M, K), torch.float32, seed=1)
    _, ws = whole_and_parts((N, K), torch.float32, seed=2)
    x, w = xs[dist.get_rank()], ws[dist.get_rank()]
    rewriting = Counted()
    with torch.no_grad():
        for _ in range(2):
            found = compiled(program, rewriting, dynamic=dynamic)(x, w, gloo)
        expected = program(x, w, gloo)
    agree(rewriting.report() == Report(left=((sentence, 2),)), f"{rewriting.report()}")
    theirs, ours = (one if isinstance(one, tuple) else (one,) for one in (expected, found))
    same = all(torch.allclose(*pair, atol=1e-4) for pair in zip(theirs, ours, strict=True))
    agree(same, "values differ")
    said = [one.getMessage() for one in caplog.records if one.name == "plait.torch"]
    expected_words = [f"a product with a collective is left to torch: {sentence}"]
    agree(said == expected_words * (dist.get_rank() == 0), f"said: {said}")


def reduced_later(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return RAW.all_reduce(x @ w.t(), "sum", group.group_name)


def scattered_later(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return RAW.reduce_scatter_tensor(x @ w.t(), "sum", group.size(), group.group_name)


def gathered_later(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
    return RAW.all_gather_into_tensor(x @ w.t(), group.size(), group.group_name)


@pytest.mark.parametrize("program", [reduced_later, scattered_later, gathered_later])
def test_the_caller_waits(program: Program, gloo: dist.ProcessGroup) -> None:
    """A collective without a wait in its graph stays: its readers are no part of the pair."""
    _, xs = whole_and_parts((M, K), torch.float32, seed=1)
    _, ws = whole_and_parts((N, K), torch.float32, seed=2)
    x, w = xs[dist.get_rank()], ws[dist.get_rank()]
    rewriting = Counted()
    with torch.no_grad():
        expected = WAIT(program(x, w, gloo))
        found = WAIT(compiled(program, rewriting)(x, w, gloo))
    agree(not rewriting.rewritten, f"rewritten: {rewriting.report()}")
    left = "" if program is gathered_later else "its result has other readers than one wait for it"
    agree(left in str(rewriting.report()), f"{rewriting.report()}")
    agree(torch.allclose(expected, found, atol=1e-4), "values differ")


def test_a_bias_that_some_ranks_have(world: int, gloo: dist.ProcessGroup) -> None:
    """Each rank compiles a graph of its own, in which the others' can't be seen."""
    group = dist.new_group(backend="plait", timeout=timedelta(seconds=30))
    assert isinstance(group, dist.ProcessGroup)
    pt.communicator(group)
    has_bias = dist.get_rank() == 0

    def program(x: torch.Tensor, w: torch.Tensor, group: dist.ProcessGroup) -> Any:
        bias = w[:, 0].contiguous() if has_bias else None
        return functional.all_reduce(nn.functional.linear(x, w, bias), "sum", group)

    said = ""
    with torch.no_grad():
        try:
            serial = Counted(pt.Options(schedule="serial"))
            compiled(program, serial)(torch.ones(M, K), torch.ones(N, K), group)
        except plait.Error as error:
            said = str(error)
    agree("disagree on the operator" in said, f"said: {said!r}")
    dist.barrier(gloo)


# The value that ranks share, and the pairs of forward and backward together.
PLANS: dict[str, tuple[Any, Any, tuple[int, ...], dict[str, int]]] = {
    "shared rows": (
        ColwiseParallel(input_layouts=Shard(0)),
        RowwiseParallel(output_layouts=Shard(0)),
        (M,),
        {"all_gather_matmul": 2, "matmul_reduce_scatter": 2},
    ),
    "shared sequence": (
        ColwiseParallel(input_layouts=Shard(1)),
        RowwiseParallel(output_layouts=Shard(1)),
        (2, M),
        {"all_gather_matmul": 2, "matmul_reduce_scatter": 2},
    ),
    "shared sequence, batch of one": (
        ColwiseParallel(input_layouts=Shard(1)),
        RowwiseParallel(output_layouts=Shard(1)),
        (1, M),
        {"all_gather_matmul": 2, "matmul_reduce_scatter": 2},
    ),
    "sums": (ColwiseParallel(), RowwiseParallel(), (M,), {"matmul_all_reduce": 2}),
    "sums, batch": (ColwiseParallel(), RowwiseParallel(), (2, M), {"matmul_all_reduce": 2}),
}


def model_of(
    world: int, plan: str, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, torch.Tensor]:
    """A model of DTensors, and rows of its input."""
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(1)
    model: nn.Module = nn.Sequential(nn.Linear(K, 8 * world), nn.ReLU(), nn.Linear(8 * world, K))
    up, down, sizes, _ = PLANS[plan]
    model = parallelize_module(model.to(dtype), mesh, {"0": up, "2": down})
    whole, _ = whole_and_parts((*sizes, K), dtype, seed=1)
    if not plan.startswith("shared"):
        return model, whole
    return model, whole[shard(M)] if len(sizes) == 1 else whole[:, shard(M)]


def gradients(run: Any, model: nn.Module, rows: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    x = rows.clone().requires_grad_()  # as behind another layer: its gradient is summed too
    out = run(x)
    out.square().sum().backward()
    grads: list[Any] = [parameter.grad for parameter in model.parameters()]
    assert x.grad is not None
    return [out.detach(), x.grad, *(one.to_local() for one in grads)]


def check_model(world: int, plan: str, dtype: torch.dtype, off: float) -> None:
    model, x = model_of(world, plan, dtype)
    expected = gradients(model, model, x)
    rewriting = Counted()
    pt.forget_report()
    found = gradients(compiled(model, rewriting), model, x)
    calls: Counter[str] = Counter()
    for row in pt.report().rows:
        if "matmul" in row.operator:
            calls[row.operator] += row.calls
    *_, pairs = PLANS[plan]
    agree(dict(rewriting.rewritten) == pairs, f"{rewriting.report()}")
    agree(calls == pairs, f"called: {calls}")
    agree(rewriting.collectives == (), f"torch makes {rewriting.collectives} too")
    for theirs, ours in zip(expected, found, strict=True):
        scale = theirs.abs().max().item()
        agree(theirs.shape == ours.shape and theirs.dtype == ours.dtype, f"{ours.shape}")
        far = (theirs.double() - ours.double()).abs().max().item()
        agree(far <= off * scale, f"{far} of {scale}")


@pytest.mark.parametrize("plan", PLANS)
def test_a_model_of_dtensors(world: int, plan: str) -> None:
    check_model(world, plan, torch.float32, 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("plan", ["shared sequence", "sums"])
def test_a_model_of_fewer_bits(world: int, plan: str, dtype: torch.dtype) -> None:
    """Torch rounds each rank's product to the dtype, and the sum of them once more."""
    check_model(world, plan, dtype, 8 * UNIT[dtype])


@pytest.fixture
def without_caches() -> Iterator[None]:
    """Graphs that another run has left in inductor's cache would not be counted."""
    with config.patch(force_disable_caches=True):
        yield
    compiler.disable()


@pytest.mark.usefixtures("without_caches")
def test_enabled_for_a_process(world: int) -> None:
    """A program that calls torch.compile(model) needs no edit."""
    model, x = model_of(world, "sums")
    expected = gradients(model, model, x)
    compiler.enable(schedule="pipelined", parts=2)
    torch._dynamo.reset()
    found = gradients(torch.compile(model), model, x)
    agree(compiler.report().rewritten == (("matmul_all_reduce", 2),), f"{compiler.report()}")
    compiler.disable()
    torch._dynamo.reset()
    without = gradients(torch.compile(model), model, x)
    agree(compiler.report().rewritten == (("matmul_all_reduce", 2),), "rewritten when disabled")
    for others in (found, without):
        for theirs, ours in zip(expected, others, strict=True):
            agree(torch.allclose(theirs, ours, atol=1e-4), "values differ")


@pytest.mark.usefixtures("without_caches")
def test_enable_is_undone(caplog: pytest.LogCaptureFixture) -> None:
    compiler.enable(schedule="serial")
    compiler.enable(schedule="serial")
    with pytest.raises(plait.Error, match="other options"):
        compiler.enable()
    assert isinstance(config.post_grad_custom_post_pass, Pass)
    compiler.disable()
    compiler.disable()
    assert config.post_grad_custom_post_pass is None

    other = Counted()
    with config.patch(post_grad_custom_post_pass=other):
        compiler.enable()
        assert next(iter(config.post_grad_custom_post_pass)) is other
        compiler.disable()
        assert config.post_grad_custom_post_pass is other
        compiler.enable()
        config.post_grad_custom_post_pass = other
        compiler.disable()
        assert config.post_grad_custom_post_pass is other
    assert "replaced after enable()" in caplog.text


@pytest.mark.parametrize("name", ["settings", "engine", "fixed_weights"])
def test_options_that_a_graph_cannot_keep(name: str) -> None:
    given: dict[str, Any] = {"settings": plait.Settings(), "engine": "c10d"}
    with pytest.raises(plait.Error, match="keeps schedule, parts and wire alone"):
        Pass(pt.Options(**{name: given.get(name, True)}))


def test_a_report_is_words() -> None:
    assert str(Report()) == "plait.torch.compiler: no product with a collective was compiled"
    found = Report((("matmul_all_reduce", 2),), (("all_reduce: a reason", 1),))
    assert str(found).splitlines() == [
        "matmul_all_reduce: 2 pairs rewritten",
        "1 pair left: all_reduce: a reason",
    ]
