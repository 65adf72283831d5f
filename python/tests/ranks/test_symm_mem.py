"""torch's two fused operators on the CPU, against torch's collective and product."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from ranks import agree, bound, whole_and_parts

import plait
import plait.torch
import plait.torch.symm_mem as symm_mem

SIZES = {"two": (8, 24), "three": (4, 8, 24)}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
PLACES = [("two", 0), ("three", 0), ("three", 1), ("three", -2)]


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    symm_mem.enable()
    plait.torch.forget_report()
    symm_mem._left.clear()
    yield
    symm_mem.disable()


def factors(dtype: torch.dtype, *outputs: int) -> list[torch.Tensor]:
    """Make [inputs, outputs], of which the first is the transpose of a weight, as in a Linear."""
    made = [whole_and_parts((24, n), dtype, seed=n)[1][dist.get_rank()] for n in outputs]
    return [made[0].t().contiguous().t(), *made[1:]]


def is_close(found: torch.Tensor, exact: torch.Tensor, sizes: torch.Tensor, terms: int) -> bool:
    off = (found.double() - exact).abs()
    return bool((off <= bound(sizes, terms, found.dtype)).all())


def on_meta(run: object, *arguments: object, **named: object) -> torch.Tensor:
    """Return what the operator's shape and strides are said to be."""
    moved = [
        one.to("meta")
        if isinstance(one, torch.Tensor)
        else [each.to("meta") for each in one]
        if isinstance(one, list)
        else one
        for one in arguments
    ]
    out: torch.Tensor = run(*moved, **named)  # type: ignore[operator]
    return out


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize(("shape", "dim"), PLACES)
def test_all_gather_matmul(
    shape: str, dim: int, dtype: torch.dtype, gloo: dist.ProcessGroup
) -> None:
    _, parts = whole_and_parts(SIZES[shape], dtype, seed=1)
    own, whole = parts[dist.get_rank()], torch.cat(parts, dim)
    by = factors(dtype, 20, 32, 12)
    run = torch.ops.symm_mem.fused_all_gather_matmul
    gathered, outs = run(own, by, dim, gloo.group_name)
    agree(torch.equal(gathered, whole), "not all rows, or not in their places")
    for out, one in zip(outs, by, strict=True):
        exact = whole.double() @ one.double()
        sizes = whole.double().abs() @ one.double().abs()
        agree(out.dtype == dtype and is_close(out, exact, sizes, 24), "values differ")
    nothing, (alone,) = run(own, by[:1], dim, gloo.group_name, return_A=False)
    agree(nothing is None and torch.equal(alone, outs[0]), "one product differs")
    rows = [row for row in plait.torch.report().rows if row.operator == "all_gather_matmul"]
    agree(sum(row.calls for row in rows) == 2, f"called: {rows}")
    # torch's own description of it counts dimensions from the first.
    _, (fake,) = on_meta(run, own, by[:1], dim % own.dim(), gloo.group_name)
    agree(fake.shape == alone.shape, f"{fake.shape}, {alone.shape}")
    agree(fake.stride() == alone.stride(), f"{fake.stride()}, {alone.stride()}")


@pytest.mark.parametrize("reduce_op", ["sum", "avg"])
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize(("shape", "dim"), PLACES)
def test_matmul_reduce_scatter(
    shape: str, dim: int, dtype: torch.dtype, reduce_op: str, gloo: dist.ProcessGroup
) -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    _, parts = whole_and_parts(SIZES[shape], dtype, seed=1)
    _, weights = whole_and_parts((24, 20), dtype, seed=2)
    run = torch.ops.symm_mem.fused_matmul_reduce_scatter
    out = run(parts[rank], weights[rank], reduce_op, dim, gloo.group_name)
    pairs = list(zip(parts, weights, strict=True))
    exact = torch.stack([x.double() @ w.double() for x, w in pairs]).sum(0)
    sizes = torch.stack([x.double().abs() @ w.double().abs() for x, w in pairs]).sum(0)
    exact, sizes = exact.chunk(world, dim)[rank], sizes.chunk(world, dim)[rank]
    if reduce_op == "avg":
        exact, sizes = exact / world, sizes / world
    agree(out.dtype == dtype and is_close(out, exact, 2 * sizes, 24 * world), "values differ")
    called = {row.operator for row in plait.torch.report().rows}
    agree(called == {"matmul_reduce_scatter"}, f"called: {called}")
    fake = on_meta(
        run, parts[rank], weights[rank], reduce_op, dim % parts[rank].dim(), gloo.group_name
    )
    agree((fake.shape, fake.stride()) == (out.shape, out.stride()), f"{fake}, {out.stride()}")


@pytest.mark.parametrize(
    ("dim", "dtype", "sentence"),
    [(1, torch.float32, "the last dimension"), (0, torch.float64, "A is torch.float64")],
    ids=["columns", "f64"],
)
def test_what_is_left_to_torch(
    dim: int,
    dtype: torch.dtype,
    sentence: str,
    gloo: dist.ProcessGroup,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, rank = dist.get_world_size(), dist.get_rank()
    _, parts = whole_and_parts((8, 24 // world if dim == 1 else 24), dtype, seed=1)
    weight = whole_and_parts((24, 20), dtype, seed=2)[0]
    operators = torch.ops.symm_mem
    for _ in range(2):
        _, (out,) = operators.fused_all_gather_matmul(parts[rank], [weight], dim, gloo.group_name)
    expected = torch.cat(parts, dim) @ weight
    agree(torch.allclose(out, expected, atol=1e-5), "all_gather_matmul differs")
    _, parts = whole_and_parts((8, 24), dtype, seed=3)
    out = operators.fused_matmul_reduce_scatter(parts[rank], weight, "sum", dim, gloo.group_name)
    expected = (torch.stack(parts).sum(0) @ weight).chunk(world, dim)[rank]
    agree(torch.allclose(out, expected, atol=1e-4), "matmul_reduce_scatter differs")
    agree(not plait.torch.report().rows, "an operator of plait's was called")
    said = [one.getMessage() for one in caplog.records if one.name == "plait.torch"]
    expects = 2 if rank == 0 else 0  # one sentence each
    agree(len(said) == expects and all(sentence in one for one in said), str(said))


def test_what_is_refused(gloo: dist.ProcessGroup) -> None:
    scatter = torch.ops.symm_mem.fused_matmul_reduce_scatter
    x, w = torch.ones(8, 6), torch.ones(6, 4)
    for arguments, sentence in (
        ((x[0], w, "sum", 0), "A has 1 dimensions"),
        ((x, w, "max", 0), "reduce_op is 'max'"),
        ((x, w, "sum", 2), "dimension 2 is none"),
        ((x[:7], w, "sum", 0), "can't share evenly"),
    ):
        with pytest.raises(plait.Error, match=sentence):
            scatter(*arguments, gloo.group_name)


def test_enable_is_undone(gloo: dist.ProcessGroup) -> None:
    symm_mem.enable()
    with pytest.raises(plait.Error, match="other options"):
        symm_mem.enable(schedule="serial")
    symm_mem.disable()
    symm_mem.disable()
    with pytest.raises(NotImplementedError):
        torch.ops.symm_mem.fused_matmul_reduce_scatter(
            torch.ones(4, 4), torch.ones(4, 4), "sum", 0, gloo.group_name
        )
    symm_mem.enable(schedule="pipelined", parts=2)
    torch.ops.symm_mem.fused_matmul_reduce_scatter(
        torch.ones(8, 4), torch.ones(4, 4), "sum", 0, gloo.group_name
    )
    agree(plait.torch.report().rows[0].plan == "pipelined parts=2", str(plait.torch.report()))
