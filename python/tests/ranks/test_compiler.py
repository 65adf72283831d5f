"""Compiled programs whose products and collectives have become plait's operators."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks import agree, shard, whole_and_parts
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import plait.torch as pt
from plait.torch.compiler import Pass

M, K, N = 8, 24, 20
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


PROGRAMS: dict[Program, dict[str, int]] = {
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

    def uuid(self) -> None:
        return None


def compiled(program: Any, rewriting: Pass) -> Any:
    torch._dynamo.reset()
    options: Any = {"post_grad_custom_post_pass": rewriting}
    return torch.compile(program, fullgraph=True, options=options)


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
    pairs = (
        zip(expected, found, strict=True) if isinstance(expected, tuple) else [(expected, found)]
    )
    for theirs, ours in pairs:
        agree(theirs.shape == ours.shape, f"shape {ours.shape}")
        agree(torch.allclose(theirs, ours, atol=1e-4), "values differ")


def test_a_model_of_dtensors(world: int) -> None:
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(1)
    model: nn.Module = nn.Sequential(
        nn.Linear(K, 8 * world), nn.ReLU(), nn.Linear(8 * world, K, bias=False)
    )
    plan: Any = {
        "0": ColwiseParallel(input_layouts=Shard(0)),
        "2": RowwiseParallel(output_layouts=Shard(0)),
    }
    model = parallelize_module(model, mesh, plan)
    whole, _ = whole_and_parts((M, K), torch.float32, seed=1)
    x = whole[shard(M)]

    def gradients(run: Any) -> list[torch.Tensor]:
        model.zero_grad()
        out = run(x)
        out.square().sum().backward()
        grads: list[Any] = [parameter.grad for parameter in model.parameters()]
        return [out.detach(), *(one.to_local() for one in grads)]

    expected = gradients(model)
    rewriting = Counted()
    found = gradients(compiled(model, rewriting))
    # Forward, and both again in backward: grad_out gathered, grad_x scattered.
    agree(rewriting.rewritten["all_gather_matmul"] >= 1, f"{rewriting.rewritten}")
    agree(rewriting.rewritten["matmul_reduce_scatter"] >= 1, f"{rewriting.rewritten}")
    for theirs, ours in zip(expected, found, strict=True):
        agree(torch.allclose(theirs, ours, atol=1e-4), "values differ")
