"""Operators by torch's products and collectives, and by the class that calls kernels on GPUs."""

import logging
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from problems import NAMES, Problem, gradient_of_result, rows
from ranks import agree, shard, whole_and_parts
from test_c10d import close

import plait
import plait.torch as pt
from plait.torch import groups, how
from plait.torch.context import context_of
from plait.torch.engines import choice, gpu
from plait.torch.engines.c10d import C10d
from plait.torch.ranks import Ranks
from plait.torch.rows import fitting_weight

SERIAL = pt.Options(engine="c10d", schedule="serial")
PIPELINED = pt.Options(engine="c10d", schedule="pipelined", parts=3)
OPTIONS = [SERIAL, PIPELINED, pt.Options(engine="c10d")]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
CPU = torch.device("cpu")
Group = dist.ProcessGroup


def run(problem: Problem, options: pt.Options, group: Group, **more: Any) -> Any:
    return problem.call(
        problem.x, problem.w, problem.bias, options=options, group=group, **problem.extra, **more
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, dtype: torch.dtype, gloo: Group) -> None:
    world = dist.get_world_size()
    for m, n, k in ((37, 70, 41), (1, 3, 64), (world - 1, 5, 7), (0, 4, 8), (6 * world, 8, 16)):
        problem = Problem(name, m, n, k, dtype)
        for options in OPTIONS:
            out = run(problem, options, gloo).detach()
            said = close(out, problem.exact, problem.sizes, world * (k + 1))
            agree(said is None, f"{name} {m}x{n}x{k} by {options}: {said}")


def in_f64(name: str, m: int, n: int, k: int, dtype: torch.dtype) -> list[tuple[Any, Any]]:
    """The gradients of x and weight on this rank, each with its sums of magnitudes."""
    grad, x, w = (
        whole_and_parts(shape, dtype, seed)[0].double()
        for shape, seed in (((m, n), 9), ((m, k), 1), ((n, k), 2))
    )
    parts = [part.double() for part in Problem(name, m, n, k, dtype).x_parts]
    own, inner, outputs = shard(m), (slice(None), shard(k)), shard(n)
    if name in ("reduce_scatter_matmul", "all_reduce_matmul"):
        x = torch.stack(parts).sum(0)
        sizes = torch.stack(parts).abs().sum(0)
    else:
        sizes = x.abs()
    of_x, sizes_of_x = grad @ w, grad.abs() @ w.abs()
    taken = own if name in ("matmul_all_gather", "reduce_scatter_matmul") else slice(None)
    of_w, sizes_of_w = grad[taken].t() @ x[taken], grad[taken].abs().t() @ sizes[taken]
    cut_x: Any = {"matmul_all_gather": own, "all_gather_matmul": own}.get(name, slice(None))
    cut_w: Any = outputs if name == "all_gather_matmul" else slice(None)
    if name in ("matmul_all_reduce", "matmul_reduce_scatter"):
        cut_x = cut_w = inner
    return [(of_x[cut_x], sizes_of_x[cut_x]), (of_w[cut_w], sizes_of_w[cut_w])]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str, dtype: torch.dtype, gloo: Group) -> None:
    world = dist.get_world_size()
    for m, n, k in ((13, 18, 10), (4 * world, 6 * world, 8)):
        for options in OPTIONS:
            problem = Problem(name, m, n, k, dtype)
            out = run(problem, options, gloo)
            out.backward(gradient_of_result(name, m, n, dtype))
            found = (problem.x.grad, problem.w.grad)
            for one, (exact, sizes) in zip(found, in_f64(name, m, n, k, dtype), strict=True):
                assert one is not None
                said = close(one, exact, sizes, world * (m + n))
                agree(said is None, f"{name} {m}x{n}x{k} by {options}: {said}")


def test_gathered_rows_and_their_gradient(gloo: Group) -> None:
    for m in (13, 4 * dist.get_world_size()):
        problem = Problem("all_gather_matmul", m, 18, 10, torch.float32)
        x, _ = whole_and_parts((m, 10), torch.float32, seed=1)
        native = pt.all_gather_matmul(problem.x, problem.w, rows=m, gathered=True)
        expected = torch.autograd.grad(native[0].sum() + native[1].sum(), (problem.x, problem.w))
        for options in OPTIONS:
            out, gathered = run(problem, options, gloo, gathered=True)
            agree(torch.equal(gathered, x), "the gathered rows")
            found = torch.autograd.grad(out.sum() + gathered.sum(), (problem.x, problem.w))
            for one, other in zip(found, expected, strict=True):
                agree(torch.allclose(one, other, atol=1e-4), "a gradient")


def test_no_communicator_is_made() -> None:
    group: Any = dist.new_group(backend="gloo")
    for name in NAMES:
        problem = Problem(name, 6, 8, 10, torch.float32)
        run(problem, PIPELINED, group).sum().backward()
    agree(group not in groups._communicators, "the engine made a communicator")
    dist.destroy_process_group(group)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_opcheck_and_other_ways_to_call(name: str, gloo: Group) -> None:
    problem = Problem(name, 8 * dist.get_world_size(), 12, 12, torch.float32)
    operator = getattr(torch.ops.plait, name).default
    extra = (problem.extra["rows"],) if problem.extra else ()
    group = str(gloo.group_name)
    given = (problem.x, problem.w, problem.bias, group, "c10d", 3, "", False, *extra)
    torch.library.opcheck(operator, given)
    expected = run(problem, PIPELINED, gloo)
    agree(torch.equal(operator(*given), expected), "torch.ops")
    with torch.no_grad():
        agree(torch.equal(run(problem, PIPELINED, gloo), expected), "no gradient")
    compiled = torch.compile(lambda: run(problem, PIPELINED, gloo), fullgraph=True)
    agree(torch.equal(compiled(), expected), "a compiled program")


def test_three_dimensions_and_strides(gloo: Group) -> None:
    x = torch.randn(4, 6, 20, generator=torch.Generator().manual_seed(4))
    w = torch.randn(9, 20, generator=torch.Generator().manual_seed(5))

    def call(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return pt.matmul_all_reduce(x, w, options=PIPELINED, group=gloo)

    flat = call(x.reshape(24, 20), w)
    for seen in (x, x.transpose(0, 1).contiguous().transpose(0, 1), x.expand(4, 6, 20)):
        agree(torch.allclose(call(seen, w).reshape(24, 9), flat, atol=1e-5), "strides")
    negated = torch.complex(x, -x).conj().imag
    agree(torch.allclose(call(negated, w).reshape(24, 9), flat, atol=1e-5), "a negated view")
    agree(call(x[0, 0], w).shape == (9,), "one dimension")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        agree(call(x, w).dtype is torch.bfloat16, "autocast")


def test_report_and_refusals(gloo: Group) -> None:
    x, w = torch.ones(2, 6), torch.ones(3, 6)
    how: dict[str, Any] = {"options": SERIAL, "group": gloo}
    pt.forget_report()
    pt.matmul_all_reduce(x, w, **how)
    agree("matmul_all_reduce by torch's product and collectives" in str(pt.report()), "the report")
    for given, words in (
        ((x, w.bfloat16()), "x is torch.float32, and weight torch.bfloat16"),
        ((x, torch.ones(3, 5)), r"x is \[2, 6\], and the weight has 5 inputs"),
        ((x, w, torch.ones(4)), r"bias is \[4\], not \[3\]"),
        ((x.double(), w.double()), "x is torch.float64; products take"),
        ((x, pt.quantize(w, "s8")), "no products of quantised weights"),
    ):
        with pytest.raises(plait.Error, match=words):
            pt.matmul_all_reduce(*given, **how)


@pytest.mark.parametrize("name", ["matmul_all_gather", "all_gather_matmul"])
def test_rows_that_are_not_this_ranks_share_are_refused(name: str, gloo: Group) -> None:
    """Else the missing rows would be taken for zeros."""
    for count in (1, 3):
        x, how_many = torch.ones(count, 6), 2 * dist.get_world_size()
        with pytest.raises(plait.Error, match=rf"{name}: x has {count} rows, and rank .* has 2 of"):
            getattr(pt, name)(x, torch.ones(3, 6), rows=how_many, options=SERIAL, group=gloo)


def by_kernels(group: Group) -> gpu.OnGpu:
    """The class that calls kernels of a GPU, with the kernels of the CPU."""
    return gpu.OnGpu(Ranks(group, "test"), context_of(group, pt.Options(), "test"), CPU)


@pytest.fixture
def classes(gloo: Group) -> tuple[gpu.OnGpu, C10d]:
    return by_kernels(gloo), C10d(Ranks(gloo, "test"), 3)


@pytest.mark.parametrize("k", [1, 8, 20, 24])
@pytest.mark.parametrize("m", [0, 1, 13])
def test_operands_are_made_readable(m: int, k: int, classes: tuple[gpu.OnGpu, C10d]) -> None:
    """Whatever is copied, filled up or left out, the values are those of torch's products."""
    generator = torch.Generator().manual_seed(6)
    x = torch.randint(-4, 5, (m, k + 3), generator=generator).bfloat16()[:, 1 : k + 1]
    n = 10
    out_in = torch.randint(-4, 5, (n, k), generator=generator).bfloat16()
    bias = torch.arange(n).bfloat16()
    own = x[shard(m)]
    for weight in (out_in.t(), out_in.t().contiguous(), out_in.t()[:, :0], out_in[::2].t()):
        added = bias[: weight.shape[1]]
        results = []
        for products in classes:
            gathered = x.new_empty(m, k)
            results.append(
                (
                    products.matmul(x, weight, added),
                    products.matmul_all_reduce(x, weight, added),
                    products.matmul_reduce_scatter(x, weight, added),
                    products.all_gather_matmul(own, weight, m, added, gathered),
                    gathered,
                    products.gathering(own, m).wait(),
                    products.summing(x, weight).wait(),
                    products.scattering(x, weight).wait(),
                )
            )
        for one, other in zip(*results, strict=True):
            agree(torch.equal(one, other), f"{m} x {k} by {list(weight.stride())}: other values")


def test_a_group_without_a_backend_for_the_cpu(world: int) -> None:
    """A group like NCCL's: plait's communicator needs its store alone."""
    group: Any = dist.new_group(backend="cuda:gloo")
    out = pt.matmul_all_reduce(torch.ones(2, 6), torch.ones(3, 6), group=group)
    agree(bool((out == 6 * world).all()), f"{out}")
    dist.destroy_process_group(group)


def test_kernels_read_negated_views(classes: tuple[gpu.OnGpu, C10d]) -> None:
    """They share the memory of what they negate, which is all that a kernel is given."""
    x, weight, bias = (torch.full(shape, 2.0) for shape in ((4, 8), (8, 8), (8,)))
    views = [torch.complex(one, one).conj().imag for one in (x, weight, bias)]
    assert all(one.is_neg() for one in views)
    for products in classes:
        out = products.matmul(*views)
        agree(bool((out == 32 - 2).all()), f"{type(products).__name__}: {out[0, 0]}")


def test_what_serves_a_gpu(world: int, gloo: Group) -> None:
    """Without a GPU there are no kernels: the group's collectives are used, or missing."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    cuda = torch.device("cuda:0")
    bf16 = torch.bfloat16
    said = gpu._agree(gloo, "matmul_all_reduce", cuda)
    agree("rank 0: " in said and "cuda:0 cannot be used" in said, said)
    served = choice.choose_on_gpu("matmul_all_reduce", cuda, bf16, gloo, pt.Options())
    agree(type(served) is C10d, type(served).__name__)
    world_group = dist.group.WORLD
    for options, dtype, words in (
        (pt.Options(), torch.bfloat16, "cuda:0 cannot be used.*make it with the backend 'nccl'"),
        (pt.Options(), torch.float32, "x is torch.float32, and plait's kernels take"),
        (pt.Options(engine="c10d"), torch.float32, "the options say so"),
        (pt.Options(wire="f16"), torch.bfloat16, "wire is 'f16', and without plait's kernels"),
    ):
        with pytest.raises(plait.Error, match=words):
            choice.choose_on_gpu("matmul_all_reduce", cuda, dtype, world_group, options)
    with pytest.raises(plait.Error, match="no kernel for matmul_all_gather"):
        choice.choose_on_gpu("matmul_all_gather", cuda, bf16, world_group, pt.Options())


def test_other_products_than_plaits_are_told_once(
    gloo: Group, caplog: pytest.LogCaptureFixture
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    cuda = torch.device("cuda:0")
    choice._warn.cache_clear()
    with caplog.at_level(logging.INFO, logger="plait.torch"):
        choice.choose_on_gpu("matmul", cuda, torch.bfloat16, gloo, SERIAL)
        agree(not caplog.messages, "the options ask for it")
        for operator in ("matmul", "matmul_all_reduce"):
            choice.choose_on_gpu(operator, cuda, torch.float32, gloo, pt.Options())
    found = [(one.levelname, one.getMessage()) for one in caplog.records]
    words = "plait's kernels do not serve calls on cuda:0: x is torch.float32"
    told = len(found) == 1 and found[0][0] == "WARNING" and found[0][1].startswith(words)
    agree(told if dist.get_rank() == 0 else not found, f"{found}")


def test_a_rank_that_fails_to_ask_its_gpu_still_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(**given: Any) -> None:
        raise plait.Error(plait.Code.system, "connect: no\nmemory")

    monkeypatch.setattr(gpu, "Communicator", type("Failing", (), {"connect": connect}))
    said = gpu._own_refusal.__wrapped__(torch.device("cuda:7"))
    agree(said == "connect: no memory", said)


def test_a_missing_rank_is_named_by_the_call_that_waits(world: int) -> None:
    if world == 1:
        pytest.skip("there is no other rank")
    group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=1))
    said = ""
    if dist.get_rank() == 0:
        with pytest.raises(plait.Error) as caught:
            gpu._agree(group, "matmul", torch.device("cuda:0"))
        said = str(caught.value)
    words = f"matmul: rank 0 has waited 1 s for rank 1 of {world}, which has made no call on a GPU "
    agree(dist.get_rank() != 0 or said.startswith(words), said)
    dist.destroy_process_group(group)


def test_two_threads_agree_once(world: int) -> None:
    group: Any = dist.new_group(backend="gloo", timeout=timedelta(seconds=20))
    found: list[str] = []

    def ask() -> None:
        found.append(gpu.refusal(group, "matmul", torch.device("cuda:0"), torch.bfloat16))

    time.sleep(0.3 * dist.get_rank())  # both threads of rank 0 wait for the others
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    agree(len(found) == 2 and found[0] == found[1], f"{found}")
    dist.destroy_process_group(group)


def test_rows_that_nccl_gathers_are_there_before_a_kernel_runs(
    classes: tuple[gpu.OnGpu, C10d], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "_has_nccl", lambda group: True)
    x = torch.arange(13.0).reshape(13, 1)
    pending = classes[0].gathering(x[shard(13)], 13)
    agree(pending.work is None and torch.equal(pending.filled, x), f"{pending}")


def test_one_rank_has_nothing_to_exchange(world: int) -> None:
    groups_of_one: list[Any] = [dist.new_group([rank], backend="gloo") for rank in range(world)]
    group = groups_of_one[dist.get_rank()]
    cuda = torch.device("cuda:0")
    said = gpu.refusal(group, "matmul", cuda, torch.bfloat16)
    agree(said == gpu._own_refusal(cuda), f"one rank agreed with others: {said}")
    for options, parts, exchanges in (
        (pt.Options(engine="c10d"), 1, False),
        (SERIAL, 1, False),
        (PIPELINED, 3, True),
    ):
        products = C10d(Ranks(group, "test"), options._c10d_parts(1))
        agree(products.parts == parts, f"{products.parts} parts")
        agree((products.ranks.group is not None) == exchanges, f"{options} and a group of one rank")
        for name in NAMES:
            x, w = torch.ones(5, 6, requires_grad=True), torch.ones(4, 6)
            out = getattr(pt, name)(x, w, options=options, group=group)
            (grad,) = torch.autograd.grad(out.sum(), x)
            agree(bool((out == 6).all() and (grad == 4).all()), f"{name} by {options}")
    dist.destroy_process_group(group)


def test_operands_that_products_do_not_take() -> None:
    x, w = rows(torch.ones(4, 6)), torch.ones(3, 6, device="meta")
    with pytest.raises(plait.Error, match="weight is on meta"):
        fitting_weight("matmul", x, w, None, turned=False)


def test_options_pass_through_operators() -> None:
    assert how.options_of("c10d", 3, "") == PIPELINED
    assert how.options_of("c10d", 1, "") == SERIAL
    assert how.options_of("c10d", 0, "") == OPTIONS[2]


def test_quantised_weights_are_refused_by_torchs_operators() -> None:
    by = pt.quantize(torch.ones(3, 6), "s8:group=6")
    parts = by.values, by.scales, by.offsets, by.scheme
    for name in ("matmul_all_reduce_quantized", "all_gather_matmul_gathered_quantized"):
        with pytest.raises(plait.Error, match="engine='c10d' has no products of quantised"):
            getattr(torch.ops.plait, name)(torch.ones(4, 6), *parts, None, "", how.C10D)
