"""Operators by quantised weights: values, compilers, refusals."""

import io
from typing import Any

import pytest
import torch
import torch.distributed as dist
from problems import NAMES, SCHEDULES, Problem
from ranks import agree, shard, whole_and_parts
from torch import nn

import plait
import plait.torch as pt

SCHEMES = ["s8", "s8:tensor", "s8:group=4", "s4:group=4:offsets"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", NAMES)
def test_quantised_weights(name: str, scheme: str) -> None:
    """The bits are those of a product by the dequantised weight, in every schedule."""
    problem = Problem(name, 13, 10, 8 * dist.get_world_size(), torch.float32)
    w = pt.quantize(problem.w, scheme)
    whole = plait.quantize(
        problem.w.detach(), layout=plait.WeightLayout.out_in, scheme=plait.QuantScheme(scheme)
    )
    exact = torch.empty_like(problem.w)
    whole.dequantize(exact.detach(), layout=plait.WeightLayout.out_in)
    problem.x.requires_grad_(False)
    outs = [
        problem.call(problem.x, w, problem.bias, options=options, **problem.extra)
        for options in SCHEDULES
    ]
    agree(all(torch.equal(outs[0], other) for other in outs), "schedules differ")
    expected = problem.call(problem.x, exact.detach(), problem.bias, **problem.extra)
    off = (outs[0] - expected).abs().max().item()
    agree(off <= 1e-4 * problem.sizes.max().item(), f"{name} {scheme}: {off}")


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_opcheck_of_quantised_weights(name: str) -> None:
    problem = Problem(name, 8 * dist.get_world_size(), 6 * dist.get_world_size(), 12, torch.float32)
    w = pt.quantize(problem.w, "s8:group=4")
    operator = getattr(torch.ops.plait, f"{name}_quantized").default
    extra = (problem.extra["rows"],) if problem.extra else ()
    parts = (w.values, w.scales, w.offsets, w.scheme)
    torch.library.opcheck(
        operator, (problem.x.detach(), *parts, problem.bias, "", "serial", 0, "", *extra)
    )


def test_gathered_rows_of_quantised_weights() -> None:
    world = dist.get_world_size()
    x, _ = whole_and_parts((4 * world, 16), torch.float32, seed=1)
    w = pt.quantize(torch.randn(6, 16, generator=torch.Generator().manual_seed(2)), "s8:group=8")
    own = x[shard(4 * world)].clone()
    out, gathered = pt.all_gather_matmul(own, w, gathered=True)
    agree(torch.equal(gathered, x), "the gathered rows")
    agree(torch.equal(out, pt.all_gather_matmul(own, w)), "the result")
    operator = torch.ops.plait.all_gather_matmul_gathered_quantized.default
    parts = (w.values, w.scales, w.offsets, w.scheme)
    torch.library.opcheck(operator, (own, *parts, None, "", "serial", 0, "", 4 * world))


@pytest.mark.long
def test_quantised_weights_are_packed_once_and_compile(world: int) -> None:
    w1 = pt.quantize(torch.randn(16, 12, generator=torch.Generator().manual_seed(6)), "s8")
    w2 = pt.quantize(torch.randn(12, 16, generator=torch.Generator().manual_seed(7)), "s4:group=8")
    x = torch.randn(4 * world, 12, generator=torch.Generator().manual_seed(8))

    def step(x: torch.Tensor, w1: pt.QuantizedWeight) -> torch.Tensor:
        return pt.matmul_reduce_scatter(torch.relu(pt.all_gather_matmul(x, w1)), w2)

    before = pt.packed_bytes()
    expected = step(x, w1)
    packed = pt.packed_bytes()
    assert packed > before
    for backend in ("aot_eager", "inductor"):
        compiled = torch.compile(step, fullgraph=True, backend=backend)
        agree(all(torch.equal(compiled(x, w1), expected) for _ in range(3)), backend)
        agree(pt.packed_bytes() == packed, f"{backend}: packed again")
    w1.scales.mul_(2)
    again = step(x, w1)
    off = (again - 2 * expected).abs().max() / expected.abs().max()
    agree(bool(off < 1e-5), "the old scales were read")
    agree(pt.packed_bytes() == packed, "packed beside the old one")
    del w1, compiled
    torch._dynamo.reset()


def test_a_quantised_weight_lets_no_gradient_through() -> None:
    w = pt.quantize(torch.ones(4, 6), "s8")
    x = torch.ones(2, 6, requires_grad=True)
    sentence = "x requires a gradient, and products by quantised weights have none"
    with pytest.raises(plait.Error, match=sentence):
        pt.matmul_all_reduce(x, w)
    with pytest.raises(plait.Error, match=sentence):
        torch.ops.plait.matmul_all_reduce_quantized(
            x, w.values, w.scales, w.offsets, w.scheme, None, ""
        )
    with torch.no_grad():
        pt.matmul_all_reduce(x, w)


def test_parts_of_a_quantised_weight_are_checked() -> None:
    w = pt.quantize(torch.ones(4, 6), "s8")
    values, scales = w.values, w.scales
    wrong = {
        "weight.values is on meta": pt.QuantizedWeight(values.to("meta"), scales, None, "s8"),
        "weight.scales is on meta": pt.QuantizedWeight(values, scales.to("meta"), None, "s8"),
        "scales": pt.QuantizedWeight(values, scales[:, :2], None, "s8"),
        "'s9' is no scheme": pt.QuantizedWeight(values, scales, None, "s9"),
        "values are f32, not s8": pt.QuantizedWeight(values.float(), scales, None, "s8"),
    }
    for sentence, weight in wrong.items():
        with pytest.raises(plait.Error, match=sentence) as caught:
            pt.matmul_all_reduce(torch.ones(2, 6), weight)
        assert caught.value.operator == "matmul_all_reduce"
    with pytest.raises(
        plait.Error, match="weight is of type list, not a tensor or a QuantizedWeight"
    ):
        pt.matmul_all_reduce(torch.ones(2, 6), [1.0])  # type: ignore[arg-type]
    with pytest.raises(plait.Error, match="x is of type list, not a tensor"):
        pt.matmul_all_reduce([1.0], w)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_quantised_weights_are_saved_and_loaded(scheme: str) -> None:
    """torch.load() reads them without trusting the file, as it reads tensors."""
    file = io.BytesIO()
    w = pt.quantize(torch.randn(8, 12, generator=torch.Generator().manual_seed(2)), scheme)
    torch.save({"up": w}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)["up"]
    x = torch.ones(2, 12)
    agree(torch.equal(pt.matmul_all_reduce(x, loaded), pt.matmul_all_reduce(x, w)), "other values")


def test_a_quantised_layer_is_neither_saved_nor_loaded(world: int) -> None:
    plan = {"0": "colwise", "1": "rowwise_split_input"}

    def model(has_bias: bool) -> nn.Module:
        sizes = 4 * world, 4 * world
        whole = nn.Sequential(nn.Linear(*sizes, bias=has_bias), nn.Linear(*sizes, bias=has_bias))
        return pt.parallelize(whole, plan)

    for has_bias in (False, True):
        plain, quantised = model(has_bias), model(has_bias)
        quantised[1].layer.quantize("s8")  # type: ignore[index]
        with pytest.raises(plait.Error, match=r"RowParallelLinear: .* has no weight to save; save"):
            quantised.state_dict()
        saved = plain.state_dict()
        with pytest.raises(plait.Error, match=r"RowParallelLinear: .* has no weight to load into"):
            quantised.load_state_dict(saved)
        others = {name: value for name, value in saved.items() if name.startswith("0.")}
        with pytest.raises(RuntimeError, match=r"Missing key\(s\).*1\.layer\.weight"):
            quantised.load_state_dict(others)
        found = quantised.load_state_dict(others, strict=False)
        assert "1.layer.weight" in found.missing_keys
        agree(torch.equal(quantised[0].weight, plain[0].weight), "not loaded")  # type: ignore[index]


@pytest.mark.parametrize("kind", [pt.ColumnParallelLinear, pt.RowParallelLinear])
def test_quantised_layers_cast_under_autocast(kind: Any, world: int) -> None:
    layer = kind.from_linear(nn.Linear(6 * world, 4 * world))
    layer.quantize("s8")
    x = torch.ones(2, 6 if kind is pt.RowParallelLinear else 6 * world)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x)
        with pytest.raises(plait.Error, match=r"x is torch\.float64"):
            layer(x.double())
    agree(out.dtype is torch.bfloat16, f"{out.dtype}")
    agree(torch.equal(out, layer.bfloat16()(x.bfloat16())), "other values")
