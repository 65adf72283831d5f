"""Mistaken arguments of layers and operators, and sizes at the edge: values or a sentence."""

import copy
import functools
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import OPERATORS, agree, both
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

import plait
import plait.torch as pt

WORLD = int(os.environ["WORLD_SIZE"])


@pytest.mark.parametrize("shape", [(0, 6), (0, 3, 6), (4, 0, 6), (1, 6), (6,)], ids=str)
def test_few_rows(shape: tuple[int, ...]) -> None:
    up, down = both()
    x = torch.randn(shape, requires_grad=True)
    y = down(up(x))
    y.sum().backward()
    assert x.grad is not None
    assert y.shape == x.grad.shape == shape


@pytest.mark.parametrize("rows", [0, 1, WORLD - 1, WORLD + 1])
def test_fewer_rows_than_ranks_share(rows: int) -> None:
    up, down = both(sequence_parallel=True)
    own = rows // WORLD + (dist.get_rank() < rows % WORLD)
    x = torch.randn(own, 6, requires_grad=True)
    y = down(up(x, rows=rows))
    y.sum().backward()
    assert x.grad is not None
    assert y.shape == x.grad.shape == (own, 6)


def test_no_batch() -> None:
    up, down = both(sequence_parallel=True)
    x = torch.randn(WORLD, 0, 6, requires_grad=True)
    y = down(up(x))
    y.sum().backward()
    assert y.shape == (WORLD, 0, 6)
    for operator in OPERATORS:
        out = operator(torch.ones(WORLD, 0, 3), torch.ones(4, 3))
        assert out.shape[1:] == (0, 4)


def test_fewer_columns_than_ranks() -> None:
    up = pt.ColumnParallelLinear.from_linear(nn.Linear(6, WORLD - 1))
    down = pt.RowParallelLinear.from_linear(nn.Linear(WORLD - 1, 6))
    y = down(up(torch.randn(3, 6, requires_grad=True)))
    y.sum().backward()
    assert y.shape == (3, 6)
    assert torch.equal(pt.matmul_all_reduce(torch.ones(3, 0), torch.ones(4, 0)), torch.zeros(3, 4))


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
@pytest.mark.parametrize("kind", [pt.ColumnParallelLinear, pt.RowParallelLinear])
def test_any_of_the_gradients(kind: Any, sequence: bool) -> None:
    torch.manual_seed(2)
    linear = nn.Linear(6, 8)
    found: dict[str, torch.Tensor] = {}
    for mask in range(7, 0, -1):
        layer = kind.from_linear(linear, sequence_parallel=sequence)
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(2 * WORLD, layer.weight.shape[1], generator=generator)
        operands = {"x": x, "weight": layer.weight, "bias": layer.bias}
        for bit, tensor in enumerate(operands.values()):
            tensor.requires_grad_(bool(mask >> bit & 1))
        layer(x).sum().backward()  # whose gradient is an expanded scalar
        for bit, (name, tensor) in enumerate(operands.items()):
            agree((tensor.grad is not None) == bool(mask >> bit & 1), f"{name} of {mask}")
            if tensor.grad is not None:
                first = found.setdefault(name, tensor.grad)
                agree(torch.equal(first, tensor.grad), f"{name} of {mask} differs")


@pytest.mark.parametrize("operator", OPERATORS)
def test_expanded_gradients(operator: Callable[..., torch.Tensor]) -> None:
    x, w = torch.randn(4, 6, requires_grad=True), torch.randn(8, 6, requires_grad=True)
    out = operator(x, w)
    out.sum().backward()
    expanded, x.grad = x.grad, None
    operator(x, w).backward(torch.ones_like(out))
    assert expanded is not None
    assert x.grad is not None
    agree(torch.equal(expanded, x.grad), "other bits than with a gradient that lies in memory")


CALLS: list[Callable[..., torch.Tensor]] = [
    pt.matmul_all_reduce,
    pt.column_parallel_linear,
    pt.row_parallel_linear,
]


@pytest.mark.parametrize("call", CALLS)
def test_a_bias_may_have_gaps(call: Callable[..., torch.Tensor]) -> None:
    x, w, bias = torch.randn(4, 6), torch.randn(8, 6), torch.arange(16.0)[::2]
    agree(torch.equal(call(x, w, bias), call(x, w, bias.clone())), "the gaps were read")


SPARSE = torch.ones(2, 6).to_sparse()
COMPLEX = torch.complex(torch.ones(2, 6), torch.ones(2, 6)).conj()
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("bias too short", {"bias": torch.ones(5)}, r"bias is \[5\], not \[8\]"),
    ("bias of integers", {"bias": torch.ones(8, dtype=torch.int64)}, "bias is torch.int64"),
    ("bias elsewhere", {"bias": torch.ones(8, device="meta")}, "bias is on meta"),
    ("bias a matrix", {"bias": torch.ones(1, 8)}, r"bias is \[1, 8\], not \[8\]"),
    ("x a scalar", {"x": torch.tensor(1.0)}, "dimension"),
    ("x elsewhere", {"x": torch.ones(2, 6, device="meta")}, "x is on meta"),
    ("x in f64", {"x": torch.ones(2, 6, dtype=torch.float64)}, "x is torch.float64"),
    (
        "x too wide",
        {"x": torch.ones(2, 7)},
        r"x is 2 x 7, not 2 x 6|x is \[2, 7\] and weight \[8, 6\]; the last dimensions",
    ),
    ("x complex", {"x": COMPLEX}, "complex|conjugates"),
    ("x sparse", {"x": SPARSE}, "x is torch.sparse_coo"),
    ("weight elsewhere", {"weight": torch.ones(8, 6, device="meta")}, "weight is on meta"),
    ("weight a vector", {"weight": torch.ones(6)}, "weight has 1 dimensions"),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("what", "operands", "sentence"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refusals(
    call: Callable[..., torch.Tensor], what: str, operands: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(plait.Error, match=sentence):
        call(**{"x": torch.ones(2, 6), "weight": torch.ones(8, 6), **operands})


def test_a_weight_whose_memory_was_freed_is_refused() -> None:
    w = torch.ones(8, 6)
    w.untyped_storage().resize_(0)  # as FullyShardedDataParallel does between its calls
    for call in CALLS:
        with pytest.raises(plait.Error, match=r"no memory|data is null"):
            call(torch.ones(2, 6), w)
    layer = pt.RowParallelLinear.from_linear(torch.nn.Linear(6, 8))
    layer.weight.untyped_storage().resize_(0)
    with pytest.raises(plait.Error, match="no memory"):
        layer.quantize("s8")


def test_other_rows_than_those_of_a_whole_x_are_refused() -> None:
    with pytest.raises(plait.Error, match="rows is 7, but x has 2, all of them"):
        pt.column_parallel_linear(torch.ones(2, 6), torch.ones(8, 6), rows=7)


@pytest.mark.parametrize("kind", [pt.ColumnParallelLinear, pt.RowParallelLinear])
def test_what_is_no_whole_layer_is_refused(kind: Any) -> None:
    with pytest.raises(plait.Error, match="linear is of type Conv1d, which has no matrix"):
        kind.from_linear(nn.Conv1d(3, 3, 1))
    with pytest.raises(plait.Error, match="linear is of type Embedding, which is no linear layer"):
        kind.from_linear(nn.Embedding(3, 3))
    with pytest.raises(plait.Error, match="linear is of type int, which has no matrix"):
        kind.from_linear(3)
    mesh = init_device_mesh("cpu", (WORLD,))
    with pytest.raises(plait.Error, match="weight is a DTensor, which is shared already"):
        kind.from_linear(distribute_module(nn.Linear(6, 8), mesh))


def test_what_torch_has_quantised_is_refused() -> None:
    x = torch.quantize_per_tensor(torch.ones(2, 6), 0.1, 0, torch.qint8)
    for call in CALLS:
        with pytest.raises(plait.Error, match=r"x is torch\.qint8"):
            call(x, torch.ones(8, 6))


def test_rows_that_no_memory_holds_are_refused() -> None:
    """They are not this rank's share of x, which is seen before memory for them is asked for."""
    x, w = torch.ones(2, 6), torch.ones(8, 6)
    gathered: Any = functools.partial(pt.all_gather_matmul, gathered=True)
    for call in (pt.all_gather_matmul, pt.matmul_all_gather, gathered):
        for options in (pt.Options(), pt.Options(engine="c10d")):
            for one in (x, x.clone().requires_grad_()):
                with pytest.raises(plait.Error, match="x has 2 rows, and rank"):
                    call(one, w, rows=1 << 40, options=options)
    quantized = pt.quantize(w, "s8")
    for call in (pt.all_gather_matmul, gathered):
        with pytest.raises(plait.Error, match="x has 2 rows, and rank"):
            call(x, quantized, rows=1 << 40)


@pytest.mark.parametrize("engine", ["native", "c10d"])
def test_a_main_grad_of_another_type_is_refused(engine: pt.options.Engine) -> None:
    weight: Any = nn.Parameter(torch.ones(8, 6))
    weight.main_grad = 3
    for call in (pt.column_parallel_linear, pt.row_parallel_linear):
        with pytest.raises(plait.Error, match="main_grad is of type int, not a tensor"):
            call(
                torch.ones(2, 6),
                weight,
                accumulate_into_main_grad=True,
                options=pt.Options(engine=engine),
            )


def test_distributed_tensors_are_refused() -> None:
    mesh = init_device_mesh("cpu", (WORLD,))
    x = distribute_tensor(torch.ones(WORLD, 6), mesh, [Shard(0)])
    w = distribute_tensor(torch.ones(8, 6), mesh, [Shard(0)])
    bias = distribute_tensor(torch.ones(8), mesh, [Shard(0)])
    given: dict[str, tuple[torch.Tensor, ...]] = {
        "x": (x, torch.ones(8, 6)),
        "weight": (torch.ones(2, 6), w),
        "bias": (torch.ones(2, 6), torch.ones(8, 6), bias),
    }
    for call in CALLS:
        for name, operands in given.items():
            with pytest.raises(plait.Error, match=f"{name} is a DTensor"):
                call(*operands)


@pytest.mark.parametrize("rows", [-1, 2.5, "2", 1 << 63])
def test_rows_are_a_number_of_rows(rows: Any) -> None:
    x, w = torch.ones(2, 6), torch.ones(8, 6)
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: pt.all_gather_matmul(x, w, rows=rows),
        lambda: pt.matmul_all_gather(x, w, rows=rows),
        lambda: pt.column_parallel_linear(x, w, rows=rows, sequence_parallel=True),
    ]
    for call in calls:
        with pytest.raises(plait.Error, match=f"rows is {rows!r}[,;]"):
            call()


def test_rows_may_be_of_a_type_like_int() -> None:
    x, w = torch.ones(2, 6), torch.ones(8, 6)
    rows: Any = torch.tensor(2 * WORLD)
    for _ in range(2):
        agree(pt.all_gather_matmul(x, w, rows=rows).shape[0] == 2 * WORLD, "rows of a tensor")


def test_no_tensor_at_all() -> None:
    nothing: Any = None
    with pytest.raises(plait.Error, match="x is of type NoneType"):
        pt.matmul_all_reduce(nothing, torch.ones(8, 6))


ENGINES = [pt.Options(), pt.Options(engine="c10d")]


@pytest.mark.parametrize("options", ENGINES, ids=["native", "c10d"])
@pytest.mark.parametrize("call", CALLS[1:])
def test_distributed_tensors_are_refused_by_every_engine(call: Any, options: pt.Options) -> None:
    mesh = init_device_mesh("cpu", (WORLD,))
    w = distribute_tensor(torch.ones(8, 6), mesh, [Shard(0)])
    with pytest.raises(plait.Error, match="weight is a DTensor"):
        call(torch.ones(2, 6), w, options=options)


def minus(x: torch.Tensor) -> torch.Tensor:
    """The values of x as a view that negates others."""
    return torch.complex(x, -x).conj().imag


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("options", ENGINES, ids=["native", "c10d"])
@pytest.mark.parametrize("call", CALLS[1:])
def test_negated_views_are_read_as_they_are(
    call: Any, options: pt.Options, sequence_parallel: bool
) -> None:
    """They share the memory of what they negate: an address alone would be another tensor."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(2 * WORLD, 6, generator=generator)
    negated, w = minus(x), torch.randn(8, 6, generator=generator)
    how = {"options": options, "sequence_parallel": sequence_parallel}
    bias = torch.randn(8, generator=generator)
    assert negated.is_neg()
    expected = call(x, w, bias, **how)
    agree(torch.equal(call(negated, w, bias, **how), expected), "other values of x were read")
    for name, given in (("weight", (x, minus(w), bias)), ("bias", (x, w, minus(bias)))):
        agree(torch.equal(call(*given, **how), expected), f"other values of {name} were read")
    leaf = x.clone().requires_grad_()
    out = call(leaf, w, **how)
    grad = torch.randn(out.shape, generator=generator)
    (expected,) = torch.autograd.grad(out, leaf, grad, retain_graph=True)
    (found,) = torch.autograd.grad(out, leaf, minus(grad))
    agree(torch.equal(found, expected), "other values of the gradient were read")


def test_uneven_rows_of_several_dimensions_are_refused() -> None:
    rows, w = 2 * WORLD + 1, torch.ones(8, 6)
    x = torch.ones(rows, 2, 6)
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: pt.matmul_reduce_scatter(x, w),
        lambda: pt.all_gather_matmul(x[:2], w, rows=rows),
        lambda: pt.row_parallel_linear(x, w, sequence_parallel=True),
        lambda: pt.column_parallel_linear(x[:2], w, sequence_parallel=True, rows=rows),
    ]
    for call in calls:
        with pytest.raises(plait.Error, match="share evenly"):
            call()
    calls = [
        lambda: pt.matmul_reduce_scatter(x[0, 0], w),
        lambda: pt.row_parallel_linear(x[0, 0], w, sequence_parallel=True),
    ]
    for call in calls:
        with pytest.raises(plait.Error, match="one dimension"):
            call()


def test_settings_are_for_layers() -> None:
    options = pt.Options(settings=plait.parse_settings("plan = 'serial'"))
    with pytest.raises(plait.Error, match=r"options\.settings are for layers"):
        pt.matmul_all_reduce(torch.ones(2, 6), torch.ones(3, 6), options=options)


@pytest.mark.parametrize("engine", ["native", "c10d"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "dtype", [torch.complex64, torch.int64, torch.bool, torch.float64], ids=str
)
def test_autocast_casts_what_torch_casts(
    call: Callable[..., torch.Tensor], dtype: torch.dtype, engine: pt.options.Engine
) -> None:
    x, w, options = torch.ones(2, 6).to(dtype), torch.ones(8, 6), pt.Options(engine=engine)
    with pytest.raises(plait.Error, match=f"x is {dtype}"):
        call(x, w, options=options)
    with torch.autocast("cpu"), pytest.raises(plait.Error, match=f"x is {dtype}"):
        call(x, w, options=options)
    with torch.autocast("cpu"):
        out = call(torch.ones(2, 6), w, torch.ones(8, dtype=torch.float16), options=options)
    agree(out.dtype is torch.bfloat16, f"{out.dtype}")


def test_autocast_of_operators() -> None:
    w = torch.ones(3, 6, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = pt.matmul_all_reduce(torch.ones(2, 6), w, torch.ones(3))
    y.sum().backward()
    assert w.grad is not None
    assert (y.dtype, w.grad.dtype) == (torch.bfloat16, torch.float32)


def test_two_layers_share_a_weight() -> None:
    linear = nn.Linear(6, 8)
    a = pt.ColumnParallelLinear.from_linear(linear)
    b = pt.ColumnParallelLinear.from_linear(linear)
    b.weight = a.weight
    x = torch.ones(2, 6)
    (a(x).sum() + b(x).sum()).backward()
    assert a.weight.grad is not None
    agree(torch.equal(a.weight.grad, torch.full_like(a.weight, 4.0)), "not the sum of both")


def test_copies_of_modules() -> None:
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(64, 64), group=dist.group.WORLD)
    layer.requires_grad_(False)
    x = torch.ones(2, 64)
    expected = layer(x)
    agree(torch.equal(copy.deepcopy(layer)(x), expected), "a copy")
    layer.quantize("s8")
    agree(torch.equal(copy.deepcopy(layer)(x), layer(x)), "a quantised copy")
    with pytest.raises(plait.Error, match="quantised already"):
        layer.quantize("s8")
    with pytest.raises(plait.Error, match="sequence_parallel is for training"):
        both(sequence_parallel=True)[0].quantize("s8")


def test_a_quantised_share_without_outputs() -> None:
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(8, WORLD - 1))
    shape = 2, layer.weight.shape[0]
    layer.quantize("s8")
    out = layer(torch.ones(2, 8))
    agree(out.shape == shape, f"{out.shape}")


def test_main_grad_is_checked() -> None:
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(6, 8), accumulate_into_main_grad=True)
    weight: Any = layer.weight
    with pytest.raises(plait.Error, match="the weight has no main_grad"):
        layer(torch.ones(2, 6))
    weight.main_grad = torch.zeros(6, weight.shape[0]).t()
    with pytest.raises(plait.Error, match="must be contiguous"):
        layer(torch.ones(2, 6))
    del weight.main_grad
    weight.requires_grad_(False)
    x = torch.ones(2, 6, requires_grad=True)
    layer(x).sum().backward()  # a frozen weight needs none
    assert x.grad is not None


@pytest.mark.parametrize("kind", [pt.ColumnParallelLinear, pt.RowParallelLinear])
def test_refused_layers_write_nothing(kind: Any) -> None:
    """Neither main_grad nor another gradient changes in a call that raises, also in backward."""
    layer = kind.from_linear(nn.Linear(6 * WORLD, 8 * WORLD), accumulate_into_main_grad=True)
    weight = layer.weight
    whole = weight.main_grad = torch.full(weight.shape, 7.0)
    k = weight.shape[1]
    x = torch.ones(2, k, requires_grad=True)
    out = layer(x)
    for bad, sentence in (
        (torch.ones(2, k + 1), f"x is \\[2, {k + 1}\\]"),
        (torch.ones(2, k, dtype=torch.float64), "x is torch.float64"),
        (torch.ones(2, k, device="meta"), "x is on meta"),
    ):
        with pytest.raises(plait.Error, match=sentence):
            layer(bad)
    turned = torch.full((k, weight.shape[0]), 7.0)
    for bad, sentence in (
        (turned.t(), "must be contiguous"),
        (turned, "as large"),
        (whole.double(), "main_grad is torch.float64"),
    ):
        weight.main_grad = bad
        with pytest.raises(plait.Error, match=sentence):
            out.sum().backward(retain_graph=True)
        assert bool((bad == 7).all())
    assert x.grad is None
    assert weight.grad is None
    assert bool((whole == 7).all())
    weight.main_grad = whole
    out.sum().backward()  # the layer is of use after all these
    assert bool((whole == 9).all())
