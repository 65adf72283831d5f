"""plait.torch.grouped_linear: bits of a product for each row, gradients, and graphs."""

import pytest
import torch

import plait
import plait.torch as pt

ROWS = [3, 0, 40, 1]
N, K = 70, 33
_ops = torch.ops.plait
Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def operands(dtype: torch.dtype, transposed: bool = False) -> Operands:
    generator = torch.Generator().manual_seed(1)
    shapes = [(sum(ROWS), K), (len(ROWS), N, K), (len(ROWS), N)]
    x, weight, bias = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    if transposed:
        weight = weight.transpose(1, 2).contiguous()
    return x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_row_has_the_bits_of_its_product_alone(dtype: torch.dtype, transposed: bool) -> None:
    x, weight, bias = (one.detach() for one in operands(dtype, transposed))
    out = pt.grouped_linear(x, weight, ROWS, bias, transposed=transposed)
    group = torch.repeat_interleave(torch.arange(len(ROWS)), torch.tensor(ROWS)).tolist()
    for row, by in enumerate(group):
        how = (weight[by], bias[by], "", "", 0, "", transposed)
        assert torch.equal(out[row : row + 1], _ops.matmul(x[row : row + 1], *how))


def exact_gradients(doubles: list[torch.Tensor], transposed: bool) -> list[torch.Tensor]:
    """Return those of x, weight and bias, given these and the gradient of the result."""
    x, weight, bias = (one.clone().requires_grad_() for one in doubles[:3])
    parts = []
    for group, rows in enumerate(x.split(ROWS)):
        by = weight[group] if transposed else weight[group].t()
        parts.append(rows @ by + bias[group])
    return list(torch.autograd.grad(torch.cat(parts), (x, weight, bias), doubles[3]))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_are_those_of_a_product_for_each_group(
    dtype: torch.dtype, transposed: bool
) -> None:
    """Each is compared with the exact one, by the bound of a sum of products in f32."""
    given = operands(dtype, transposed)
    out = pt.grouped_linear(given[0], given[1], torch.tensor(ROWS), given[2], transposed=transposed)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    out.backward(grad)
    doubles = [one.detach().double() for one in (*given, grad)]
    exact = exact_gradients(doubles, transposed)
    sizes = exact_gradients([one.abs() for one in doubles], transposed)
    most = max(N, *ROWS) * 2.0**-24  # of the terms of a sum, each rounds once
    unit = 2.0**-8 if dtype is torch.bfloat16 else 2.0**-24  # of the result
    for ours, wanted, size in zip(given, exact, sizes, strict=True):
        assert ours.grad is not None
        off = (ours.grad.double() - wanted).abs()
        assert bool((off <= (most / (1 - most) + unit * (1 + most)) * size).all())
    assert given[1].grad is not None
    assert not given[1].grad[1].any()


def test_it_compiles_in_one_graph() -> None:
    x, weight, bias = operands(torch.float32)
    rows = torch.tensor(ROWS)

    def call(x: torch.Tensor) -> torch.Tensor:
        return pt.grouped_linear(x, weight, rows, bias).relu()

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    expected, found = call(x), compiled(x)
    assert torch.equal(expected, found)
    [one] = torch.autograd.grad(expected.sum(), x)
    [other] = torch.autograd.grad(found.sum(), x)
    assert torch.equal(one, other)


def test_opcheck() -> None:
    x, weight, bias = operands(torch.float32)
    for given in (None, bias):
        torch.library.opcheck(
            _ops.grouped_linear.default, (x, weight, torch.tensor(ROWS), given, False)
        )


def test_refusals() -> None:
    x, weight, bias = (one.detach() for one in operands(torch.float32))
    for rows, sentence in [
        ([3, 0, 40], "rows is torch.int64 [3], not torch.int64 [4]"),
        ([3, 0, 40, 2], "the groups have [3, 0, 40, 2] rows, and x has 44"),
        ([4, -1, 40, 1], "the groups have [4, -1, 40, 1] rows, and x has 44"),
    ]:
        with pytest.raises(plait.Error) as caught:
            pt.grouped_linear(x, weight, rows)
        assert str(caught.value) == f"grouped_linear: {sentence}"
    with pytest.raises(plait.Error, match=r"weight \[4, 70, 33\], which don't fit$"):
        pt.grouped_linear(x, weight, ROWS, transposed=True)
    with pytest.raises(plait.Error, match=r"bias is \[4, 70\], not \[4, 33\]$"):
        pt.grouped_linear(x[:, :1].expand(-1, 70), weight, ROWS, bias, transposed=True)
    with pytest.raises(plait.Error, match=r"x is torch.float32, and weight torch.float16$"):
        pt.grouped_linear(x, weight.half(), ROWS)
