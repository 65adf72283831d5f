"""The two layers by every engine: one interface, and the same values."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree, shard

import plait.torch as pt
from plait.torch import linear
from plait.torch.context import context_of
from plait.torch.engines import choice
from plait.torch.engines.c10d import C10d
from plait.torch.engines.engine import Engine
from plait.torch.engines.gpu import OnGpu
from plait.torch.engines.native import Native
from plait.torch.ranks import Ranks

LAYERS: dict[str, Any] = {"column": pt.column_parallel_linear, "row": pt.row_parallel_linear}
M, N, K = 13, 11, 17  # whose shares are uneven


@pytest.fixture(params=["native", "gpu", "c10d"])
def engine(request: pytest.FixtureRequest, gloo: Any, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Let layers take an engine; that of GPUs calls the kernels of the CPU."""
    made: Engine
    if request.param == "native":
        made = Native(context_of(gloo, pt.Options(), "test"))
    elif request.param == "gpu":
        context = context_of(gloo, pt.Options(), "test")
        made = OnGpu(Ranks(gloo, "test"), context, torch.device("cpu"))
    else:
        made = C10d(Ranks(gloo, "test"), 3)
    monkeypatch.setattr(linear, "choose", lambda *call: made)
    return made


def numbers(seed: int, *shape: int) -> torch.Tensor:
    """Whole numbers, so that every order of a sum gives the same bits."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 4, shape, generator=generator).float()


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind: str, sequence: bool, engine: Engine) -> None:
    x, weight, bias, grad = numbers(1, M, K), numbers(2, N, K), numbers(3, N), numbers(4, M, N)
    everything = slice(None)
    rows = shard(M) if sequence else everything
    outputs = shard(N) if kind == "column" else everything
    inputs = shard(K) if kind == "row" else everything
    of_x, of_out = (rows, everything) if kind == "column" else (everything, rows)
    operands = [x[of_x, inputs], weight[outputs, inputs], bias[outputs]]
    leaves = [one.clone().requires_grad_() for one in operands]
    how: dict[str, Any] = {"sequence_parallel": sequence}
    if kind == "column" and sequence:
        how["rows"] = M
    out = LAYERS[kind](*leaves, **how)
    out.backward(grad[of_out, outputs])
    exact = [
        (x @ weight.t() + bias)[of_out, outputs],
        (grad @ weight)[of_x, inputs],
        (grad.t() @ x)[outputs, inputs],
        grad.sum(0)[outputs],
    ]
    found = [out.detach(), *(one.grad for one in leaves)]
    for what, one, other in zip(("result", "x", "weight", "bias"), found, exact, strict=True):
        assert one is not None
        agree(torch.equal(one, other), f"{what}: off by {(one - other).abs().max()}")
    with torch.no_grad():
        agree(torch.equal(LAYERS[kind](*operands, **how), exact[0]), "without gradients")


def test_collectives_of_rows(engine: Engine) -> None:
    world = dist.get_world_size()
    x = numbers(5, M, K)
    agree(torch.equal(engine.gathered(x[shard(M)], M), x), "gathered rows")
    agree(torch.equal(engine.sum_of(x), world * x), "a sum")
    agree(torch.equal(engine.own_sum_of(x), world * x[shard(M)]), "own rows of a sum")


def test_the_options_choose(gloo: Any) -> None:
    operands = torch.ones(2, 4), torch.ones(3, 4), None
    for options, kind in (
        (pt.Options(), Native),
        (pt.Options(fixed_weights=True), Native),
        (pt.Options(engine="c10d"), C10d),
    ):
        found = choice.choose("row_parallel_linear", operands, gloo, options)
        agree(type(found) is kind, f"{options} takes {type(found).__name__}")
