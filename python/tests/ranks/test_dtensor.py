"""plait's styles beside torch's own: the same layouts, numbers and gradients."""

import copy
import logging
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree, shard, whole_and_parts
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import plait.torch as pt
from plait.torch import dtensor

HIDDEN, INNER = 12, 20


@pytest.fixture(scope="module")
def mesh(world: int) -> DeviceMesh:
    return init_device_mesh("cpu", (world,))


class Mlp(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.up = nn.Linear(HIDDEN, INNER * dist.get_world_size(), bias=bias)
        self.down = nn.Linear(INNER * dist.get_world_size(), HIDDEN, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(torch.nn.functional.gelu(self.up(x)))
        return out


def test_a_program_changes_one_line() -> None:
    """Everything but plait's products is torch's."""
    from torch.distributed.tensor import parallel

    assert set(dtensor.__all__) == set(parallel.__all__)
    for name in set(parallel.__all__) - {"ColwiseParallel", "RowwiseParallel"}:
        assert getattr(dtensor, name) is getattr(parallel, name)


def full(tensor: torch.Tensor | None) -> torch.Tensor:
    assert tensor is not None
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def step(model: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    x = x.detach().requires_grad_()
    out = model(x)
    full(out).square().sum().backward() if isinstance(
        out, DTensor
    ) else out.square().sum().backward()
    found = {"out": full(out).detach(), "x": full(x.grad)}
    for name, parameter in model.named_parameters():
        agree(isinstance(parameter, DTensor), f"{name} is no DTensor")
        found[name] = full(parameter.grad)
    return found


def compare(theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor]) -> None:
    for name, expected in theirs.items():
        same = expected.shape == ours[name].shape
        off = (expected - ours[name]).abs().max() / expected.abs().max() if same else 1.0
        # Two sums of at most 100 products in f32, in different orders.
        agree(bool(off <= 2 * 100 * 2.0**-24 * 10), f"{name} is off by {off}")


# Layouts of input and output, the shape of the whole input, and the dimension that ranks share.
CASES: dict[str, tuple[Any, Any, tuple[int, ...], int | None]] = {
    "whole": ({}, {}, (6, HIDDEN), None),
    "whole, 3 dimensions": ({}, {}, (3, 2, HIDDEN), None),
    "rows": (
        {"input_layouts": Shard(0)},
        {"output_layouts": Shard(0)},
        (8, HIDDEN),
        0,
    ),
    "rows, 3 dimensions": (
        {"input_layouts": Shard(0)},
        {"output_layouts": Shard(0)},
        (8, 3, HIDDEN),
        0,
    ),
    "sequence of one batch": (
        {"input_layouts": Shard(1)},
        {"output_layouts": Shard(1)},
        (1, 8, HIDDEN),
        1,
    ),
    "DTensors": (
        {"use_local_output": False},
        {"use_local_output": False},
        (6, HIDDEN),
        None,
    ),
}


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("case", CASES)
def test_like_torch(
    case: str, bias: bool, mesh: DeviceMesh, caplog: pytest.LogCaptureFixture
) -> None:
    column, row, shape, dim = CASES[case]
    x, _ = whole_and_parts(shape, torch.float32, seed=9)
    if dim is not None:
        x = x.narrow(dim, shard(shape[dim]).start, shape[dim] // dist.get_world_size())
    model = Mlp(bias)
    theirs = parallelize_module(
        copy.deepcopy(model),
        mesh,
        {"up": ColwiseParallel(**column), "down": RowwiseParallel(**row)},
    )
    ours = parallelize_module(
        model,
        mesh,
        {"up": dtensor.ColwiseParallel(**column), "down": dtensor.RowwiseParallel(**row)},
    )
    pt.forget_report()
    compare(step(theirs, x), step(ours, x))
    agree(len(pt.report().rows) > 0, "plait was not called")
    agree(not caplog.records, caplog.text)


def test_a_dtensor_comes_in(mesh: DeviceMesh) -> None:
    x, _ = whole_and_parts((8, HIDDEN), torch.float32, seed=9)
    model = Mlp()
    for placement in (Replicate(), Shard(0)):
        mine = x if placement == Replicate() else x[shard(8)]
        given = DTensor.from_local(mine, mesh, (placement,))
        found = []
        for styles in ((ColwiseParallel,), (dtensor.ColwiseParallel,)):
            shared = parallelize_module(copy.deepcopy(model.up), mesh, styles[0]())
            found.append(step(shared, given))
        compare(*found)


@pytest.mark.parametrize("batch", [2])
def test_what_is_left_to_torch(
    batch: int, mesh: DeviceMesh, caplog: pytest.LogCaptureFixture
) -> None:
    world = dist.get_world_size()
    x = torch.ones(batch, 2, HIDDEN)
    plans: list[dict[str, Any]] = [
        {
            "up": styles[0](input_layouts=Shard(1)),
            "down": styles[1](output_layouts=Shard(1)),
        }
        for styles in (
            (ColwiseParallel, RowwiseParallel),
            (dtensor.ColwiseParallel, dtensor.RowwiseParallel),
        )
    ]
    dtensor._logged.clear()
    with caplog.at_level(logging.WARNING):
        theirs, ours = (step(parallelize_module(Mlp(), mesh, plan), x) for plan in plans)
        again = step(parallelize_module(Mlp(), mesh, plans[1]), x)
    compare(theirs, ours)
    compare(theirs, again)
    said = [record.getMessage() for record in caplog.records]
    expected = 2 if dist.get_rank() == 0 else 0
    agree(len(said) == expected, f"logged: {said}")
    agree(all("don't lie together" in one for one in said), f"logged: {said}")
    uneven = nn.Linear(4, world + 1)
    given = torch.ones(2, 4)
    shared = parallelize_module(copy.deepcopy(uneven), mesh, dtensor.ColwiseParallel())
    with torch.no_grad():
        other = parallelize_module(uneven, mesh, ColwiseParallel())(given)
        agree(torch.equal(shared(given), other), "uneven outputs")


def test_embeddings_are_torch_s(mesh: DeviceMesh) -> None:
    torch.manual_seed(1)
    table = nn.Embedding(10, 4 * dist.get_world_size())
    numbers = torch.tensor([1, 5, 7])
    expected = table(numbers)[:, shard(4 * dist.get_world_size())]
    shared = parallelize_module(table, mesh, dtensor.ColwiseParallel())
    agree(torch.equal(shared(numbers), expected), "embedding")


def test_a_copy_calls_itself(mesh: DeviceMesh) -> None:
    shared = parallelize_module(Mlp().up, mesh, dtensor.ColwiseParallel())
    other = copy.deepcopy(shared)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
        agree(bool((other(torch.ones(2, HIDDEN)) == 0).all()), "the copy has the first's weight")
        agree(bool((shared(torch.ones(2, HIDDEN)) != 0).any()), "the first has the copy's weight")


def test_changes_of_fixed_weights_that_autograd_counts(mesh: DeviceMesh) -> None:
    """A change of a DTensor counts as one of its own, and not of its local part."""
    options = pt.Options(fixed_weights=True)
    plan = {"up": dtensor.ColwiseParallel(options=options), "down": dtensor.RowwiseParallel()}
    found: Any = dtensor.parallelize_module(Mlp(), mesh, plan)
    alone: Any = Mlp()
    x = torch.ones(4, HIDDEN)
    with torch.no_grad():
        for _ in range(2):
            for _ in range(10):  # the weight is packed by then
                off = (found(x) - alone(x)).abs().max().item()
            agree(off < 1e-5, f"it is off by {off}")
            for one in (found, alone):
                one.up.weight.mul_(0.5)
