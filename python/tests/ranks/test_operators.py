"""The operators on several ranks: values, gradients, schedules, compilers."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from problems import NAMES, SCHEDULES, Problem, gradient_of_result
from ranks import Estimate, agree, bound, known, product, shard, whole_and_parts

import plait
import plait.torch as pt

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, dtype: torch.dtype) -> None:
    for m, n, k in ((37, 70, 41), (1, 3, 64), (dist.get_world_size() - 1, 5, 7), (0, 4, 8)):
        problem = Problem(name, m, n, k, dtype)
        outs = [problem.run(options).detach() for options in SCHEDULES]
        off = (outs[0].double() - problem.exact).abs()
        limit = bound(problem.sizes, k + 2 * dist.get_world_size(), dtype, problem.rounded)
        agree(
            all(torch.equal(outs[0], other) for other in outs),
            f"{name} {m}x{n}x{k}: schedules differ",
        )
        worst = off.max().item() if off.numel() else 0.0
        agree(bool((off <= limit).all()), f"{name} {m}x{n}x{k} {dtype}: {worst}")


@pytest.mark.parametrize("wire", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_wire(name: str, wire: torch.dtype) -> None:
    """Partial sums are rounded to it, on every rank and in every schedule alike."""
    problem = Problem(name, 37, 70, 41, torch.float32)
    text = {torch.bfloat16: "bf16", torch.float16: "f16"}[wire]
    outs = [problem.run(replace(options, wire=text)).detach() for options in SCHEDULES]
    agree(all(torch.equal(outs[0], other) for other in outs), f"{name}: schedules differ")
    plain = problem.run(SCHEDULES[0]).detach()
    if name in ("matmul_all_reduce", "matmul_reduce_scatter"):
        agree(not torch.equal(outs[0], plain), f"{name}: nothing was rounded")
        world = dist.get_world_size()
        limit = bound(problem.sizes, 41 + 2 * world, torch.float32)
        limit = limit + bound(problem.sizes, 0, wire) + world * 2.0**-24  # of f16 below its normals
        off = (outs[0].double() - problem.exact).abs()
        agree(bool((off <= limit).all()), f"{name}: {off.max()}")
    else:
        agree(torch.equal(outs[0], plain), f"{name} has no partial sums to round")


@pytest.mark.parametrize("name", NAMES)
def test_wire_of_8_bits(name: str) -> None:
    """64 columns of each rank's sum share a scale, and no schedule divides them."""
    problem = Problem(name, 37, 170, 41, torch.float32)
    outs = [problem.run(replace(options, wire="s8")).detach() for options in SCHEDULES]
    agree(all(torch.equal(outs[0], other) for other in outs), f"{name}: schedules differ")
    plain = problem.run(SCHEDULES[0]).detach()
    if name not in ("matmul_all_reduce", "matmul_reduce_scatter"):
        agree(torch.equal(outs[0], plain), f"{name} has no partial sums to round")
        return
    agree(not torch.equal(outs[0], plain), f"{name}: nothing was rounded")
    world = dist.get_world_size()
    limit = bound(problem.sizes, 41 + 2 * world, torch.float32)
    for begin in range(0, 170, 64):
        # No rank's sums are larger than the sizes of all ranks' together.
        largest = problem.sizes[:, begin : begin + 64].amax(1, keepdim=True)
        limit[:, begin : begin + 64] += world * largest / 252
    off = (outs[0].double() - problem.exact).abs()
    agree(bool((off <= limit).all()), f"{name}: {off.max()}")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str, dtype: torch.dtype) -> None:
    m, n, k = 13, 18, 10
    grad, x, w = (
        known(whole_and_parts(shape, dtype, seed)[0])
        for shape, seed in (((m, n), 9), ((m, k), 1), ((n, k), 2))
    )
    parts = torch.stack([part.double() for part in Problem(name, m, n, k, dtype).x_parts])
    summed = Estimate(parts.sum(0), bound(parts.abs().sum(0), len(parts), dtype))
    own, inner, outputs = shard(m), (slice(None), shard(k)), shard(n)
    expected = {
        "matmul_all_reduce": (product(grad, w, dtype)[inner], product(grad.t(), x, dtype)[inner]),
        "matmul_all_gather": (product(grad, w, dtype)[own], product(grad[own].t(), x[own], dtype)),
        "all_gather_matmul": (
            product(grad, w, dtype)[own],
            product(grad.t(), x, dtype)[outputs],
        ),
        "reduce_scatter_matmul": (
            product(grad, w, dtype),
            product(grad[own].t(), summed[own], dtype),
        ),
        "all_reduce_matmul": (product(grad, w, dtype), product(grad.t(), summed, dtype)),
    }
    expected["matmul_reduce_scatter"] = expected["matmul_all_reduce"]
    first: list[torch.Tensor] = []
    for options in SCHEDULES:
        problem = Problem(name, m, n, k, dtype)
        problem.run(options, bias=False).backward(gradient_of_result(name, m, n, dtype))
        assert problem.x.grad is not None
        assert problem.w.grad is not None
        found = [problem.x.grad, problem.w.grad]
        first = first or found
        for what, one, same, limit in zip("xw", found, first, expected[name], strict=True):
            reason = limit.why_not(one)
            agree(not reason, f"{name} {dtype}: the gradient of {what} is {reason}")
            agree(torch.equal(one, same), f"{name}: the gradient of {what} by {options} differs")


def test_three_dimensions_and_strides() -> None:
    x = torch.randn(4, 6, 20, generator=torch.Generator().manual_seed(4))
    w = torch.randn(9, 20, generator=torch.Generator().manual_seed(5))
    flat = pt.matmul_all_reduce(x.reshape(24, 20), w)
    for seen in (x, x.transpose(0, 1).contiguous().transpose(0, 1), x.expand(4, 6, 20)):
        agree(torch.equal(pt.matmul_all_reduce(seen, w).reshape(24, 9), flat), "strides")
    across = w.t().contiguous().t()
    agree(torch.equal(pt.matmul_all_reduce(x, across).reshape(24, 9), flat), "a transposed weight")
    negated = torch.complex(x, -x).conj().imag
    agree(torch.equal(pt.matmul_all_reduce(negated, w).reshape(24, 9), flat), "a negated view")
    row = x[0, :1].expand(5, 20)
    agree(torch.equal(pt.matmul_all_reduce(row, w)[4], flat[0]), "rows that share memory")
    agree(pt.matmul_all_reduce(x[0, 0], w).shape == (9,), "one dimension")


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name: str) -> None:
    problem = Problem(name, 8 * dist.get_world_size(), 6 * dist.get_world_size(), 12, torch.float32)
    operator = getattr(torch.ops.plait, name).default
    extra = (problem.extra["rows"],) if problem.extra else ()
    torch.library.opcheck(
        operator, (problem.x, problem.w, problem.bias, "", "serial", 0, "", False, *extra)
    )


def test_gathered_rows_and_their_gradient() -> None:
    """The pair's second is what all ranks have, and its own rows of a gradient come back."""
    m, n, k = 13, 18, 10
    for inner in ((), (2,)):
        first = m if not inner else 4 * dist.get_world_size()
        x, _ = whole_and_parts((first, *inner, k), torch.float32, seed=1)
        w, _ = whole_and_parts((n, k), torch.float32, seed=2)
        grad, _ = whole_and_parts((first, *inner, n), torch.float32, seed=9)
        grad_gathered, _ = whole_and_parts((first, *inner, k), torch.float32, seed=8)
        own, outputs = shard(first), shard(n)
        expected: list[torch.Tensor] = []
        for options in SCHEDULES:
            leaf = x[own].clone().requires_grad_()
            weight = w[outputs].clone().requires_grad_()
            out, gathered = pt.all_gather_matmul(
                leaf, weight, rows=first, gathered=True, options=options
            )
            agree(torch.equal(gathered, x), "the gathered rows")
            plain = pt.all_gather_matmul(leaf, weight, rows=first, options=options)
            agree(torch.equal(out, plain), "the result")
            alone = torch.autograd.grad(plain, [leaf, weight], grad[..., outputs])
            for used, added in (((out,), 0.0), ((out, gathered), 1.0), ((gathered,), 1.0)):
                both = {id(out): grad[..., outputs], id(gathered): grad_gathered}
                found = torch.autograd.grad(
                    used, [leaf, weight], [both[id(one)] for one in used], retain_graph=True
                )
                from_out = alone if used[0] is out else [torch.zeros_like(one) for one in alone]
                agree(torch.equal(found[0], from_out[0] + added * grad_gathered[own]), "x")
                agree(torch.equal(found[1], from_out[1]), "weight")
            expected = expected or [*alone]
            agree(all(map(torch.equal, expected, alone)), f"{options} has other bits")


def test_gathered_rows_compile() -> None:
    world = dist.get_world_size()
    x, _ = whole_and_parts((4 * world, 16), torch.float32, seed=1)
    plain = torch.randn(6, 16, generator=torch.Generator().manual_seed(3)).requires_grad_()
    leaf = x[shard(4 * world)].clone().requires_grad_()
    gathering = torch.ops.plait.all_gather_matmul_gathered.default
    torch.library.opcheck(gathering, (leaf, plain, None, "", "serial", 0, "", False, 4 * world))

    def step(x: torch.Tensor) -> torch.Tensor:
        out, gathered = pt.all_gather_matmul(x, plain, gathered=True)
        return torch.cat([out, gathered], 1)

    whole = step(leaf)
    (expected,) = torch.autograd.grad(whole.square().sum(), leaf)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")(leaf)
    (found,) = torch.autograd.grad(compiled.square().sum(), leaf)
    agree(torch.equal(compiled, whole), "compiled forward")
    agree(torch.equal(found, expected), "compiled backward")


@pytest.mark.long
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_whole(backend: str, gloo: dist.ProcessGroup) -> None:
    """An MLP as one graph, over the default group and over another by its name."""
    w1 = torch.randn(16, 12, generator=torch.Generator().manual_seed(6)).requires_grad_()
    w2 = torch.randn(12, 16, generator=torch.Generator().manual_seed(7)).requires_grad_()
    x = torch.randn(8, 2, 12, generator=torch.Generator().manual_seed(8))
    group = None if backend == "aot_eager" else gloo.group_name

    def step(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(pt.all_gather_matmul(x, w1, group=group))
        return pt.matmul_reduce_scatter(hidden, w2, group=group)

    step(x).square().sum().backward()
    expected, w1.grad = w1.grad, None
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    out = compiled(x)
    out.square().sum().backward()
    agree(torch.equal(out, step(x)), "compiled forward")
    assert expected is not None
    assert w1.grad is not None
    off = (w1.grad - expected).abs().max() / expected.abs().max()
    agree(bool(off < 1e-5), f"compiled backward: {off}")


def test_options_are_made_in_a_compiled_program() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        options = pt.Options(schedule="pipelined", parts=2, wire="bf16", fixed_weights=True)
        return pt.matmul_all_reduce(x, w, options=options)

    x, w = torch.ones(2, 6), torch.ones(8, 6)
    compiled = torch.compile(program, fullgraph=True, backend="eager")
    agree(torch.equal(compiled(x, w), program(x, w)), "other values")


def two_layers(world: int) -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        pt.ColumnParallelLinear.from_linear(torch.nn.Linear(6, 4 * world)),
        torch.nn.ReLU(),
        pt.RowParallelLinear.from_linear(torch.nn.Linear(4 * world, 6)),
    )


@pytest.mark.long
def test_layers_are_not_compiled_for_each_shape(world: int) -> None:
    model = two_layers(world)
    compiled = torch.compile(model, backend="eager", dynamic=False)
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        for rows in range(1, 6):
            x = torch.ones(rows, 6)
            agree(torch.equal(compiled(x), model(x)), f"values of {rows} rows")


def test_layers_in_compiled_programs(world: int) -> None:
    """A graph ends before a layer, and goes on after it."""
    model = two_layers(world)
    x = torch.randn(4, 6)

    def run(call: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        model.zero_grad()
        out = call(x)
        out.sum().backward()
        grads = [one.grad for one in model.parameters()]
        return [out, *(grad.clone() for grad in grads if grad is not None)]

    expected = run(model)
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(2):
        found = run(compiled)
        agree(all(map(torch.equal, expected, found)), "values")
    with torch.no_grad():
        agree(torch.equal(compiled(x), expected[0]), "without gradients")


@pytest.mark.parametrize(
    ("x", "w", "sentence"),
    [
        (torch.ones(2, 3, dtype=torch.int32), torch.ones(4, 3), "x is torch.int32"),
        (torch.ones(2, 3), torch.ones(4, 5), "x is 2 x 3, not 2 x 5"),
        (torch.ones(2, 3), torch.ones(4, 3, 1), "weight has 3 dimensions"),
        (torch.ones(2, 3, device="meta"), torch.ones(4, 3), "x is on meta"),
        (torch.ones(2, 3).to_sparse(), torch.ones(4, 3), "x is torch.sparse_coo"),
    ],
    ids=["dtype", "sizes", "dimensions", "device", "sparse"],
)
def test_refusals(x: torch.Tensor, w: torch.Tensor, sentence: str) -> None:
    with pytest.raises(plait.Error, match=sentence) as raised:
        pt.matmul_all_reduce(x, w)
    assert raised.value.operator == "matmul_all_reduce"


def test_options_are_refused_in_words() -> None:
    for options, sentence in (
        ({"schedule": "fast"}, "schedule is 'fast'"),
        ({"parts": 4}, "only schedule='pipelined' has parts"),
        ({"wire": "s4"}, "wire is 's4'"),
        ({"schedule": "pipelined", "parts": 65}, "65"),
    ):
        with pytest.raises(plait.Error, match=sentence):
            pt.Options(**options)


def test_report_names_plans_and_what_is_hidden(world: int) -> None:
    pt.forget_report()
    x, w = torch.ones(64, 512), torch.ones(256, 512)
    options = pt.Options(schedule="pipelined", parts=2)
    pt.matmul_all_reduce(x, w, options=options)
    first = pt.report().rows[0]
    assert (first.calls, first.traced, first.hidden) == (1, 0, None)
    assert first.reason == "as options or settings say; no call was traced yet"
    for _ in range(4):
        pt.matmul_all_reduce(x, w, options=options)
        pt.all_gather_matmul(x, w, options=SCHEDULES[0])
    rows = {row.operator: row for row in pt.report().rows}
    pipelined, serial = rows["matmul_all_reduce"], rows["all_gather_matmul"]
    # Two of the five calls were traced: the second and the fourth.
    found = (pipelined.calls, pipelined.traced, pipelined.m, pipelined.n, pipelined.k)
    agree(found == (5, 2, 64, 256, 512 * world), str(pipelined))
    agree(pipelined.plan == "pipelined parts=2", pipelined.plan)
    agree(pipelined.hidden is not None and 0 <= pipelined.hidden <= 1, str(pipelined))
    share = pipelined.hidden or 0.0
    is_short = pipelined.reason == "as options or settings say"
    agree(is_short == (share >= 0.9), f"no reason: {pipelined}")
    waited = serial.waited or 0.0
    agree(serial.hidden == 0 and serial.waited is not None, str(serial))
    # Little is waited for, unless other programs keep a rank from coming.
    why, _, late = serial.reason.partition("; ")
    agree(why == "as options or settings say" and bool(late) == (waited > 0.1), str(serial))
    agree(late == "" or late.startswith("waits for other ranks "), str(serial))
    text = str(pt.report())
    agree("hidden" in text.splitlines()[0] and "serial; as options or settings say" in text, text)


def test_report_leaves_a_trace_of_the_programs_alone() -> None:
    comm, trace = pt.communicator(), plait.Trace(dist.get_rank())
    pt.forget_report()
    comm.set_trace(trace)
    try:
        for _ in range(4):
            pt.matmul_all_reduce(torch.ones(2, 6), torch.ones(3, 6))
        assert comm.trace is trace
    finally:
        comm.set_trace(None)
    assert comm.trace is None
    recorded = plait._native.calls_in_pack(trace.pack())
    assert {4} == {one.count for one in recorded if "matmul_all_reduce" in one.problem}
    assert [row.traced for row in pt.report().rows] == [0]


def test_report_names_layers_that_plait_does_not_hide() -> None:
    pt.forget_report()
    for call in (pt.column_parallel_linear, pt.row_parallel_linear):
        call(torch.ones(4, 8), torch.ones(6, 8), options=pt.Options(engine="c10d"))
    assert not pt.report().rows
    others = dict(pt.report().others)
    assert len(others) == 2
    assert set(others.values()) == {1}
    assert "(engine 'c10d'): 1 call" in str(pt.report())


@pytest.mark.parametrize("name", NAMES)
def test_a_second_differentiation_is_refused(name: str) -> None:
    problem = Problem(name, 2 * dist.get_world_size(), 8, 8, torch.float32)
    out = problem.run(SCHEDULES[0])
    for loss in (out.square().sum(), out.sum()):
        (grad,) = torch.autograd.grad(loss, problem.x, create_graph=True)
        with pytest.raises(plait.Error, match="it can be differentiated once"):
            (out.sum() + grad.square().sum()).backward(retain_graph=True)
