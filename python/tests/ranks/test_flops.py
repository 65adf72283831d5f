"""torch's FlopCounterMode counts this rank's products, as it counts those of torch.mm."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import plait.torch as pt

OWN, K, N = 6, 32, 12  # OWN: rows of x on each rank


# Which rows an operator multiplies.
def of_x(rows: int, world: int) -> int:  # those of x
    return rows


def of_all(rows: int, world: int) -> int:  # those of all ranks
    return rows * world


def of_a_share(rows: int, world: int) -> int:  # a share of those of x
    return rows // world


def flops_of(call: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


@pytest.mark.parametrize(
    ("name", "forward", "grad_x", "grad_weight"),
    [
        ("matmul_all_reduce", of_x, of_x, of_x),
        ("matmul_reduce_scatter", of_x, of_x, of_x),
        ("matmul_all_gather", of_x, of_x, of_x),
        ("all_gather_matmul", of_all, of_all, of_all),
        (
            "reduce_scatter_matmul",
            of_a_share,
            of_x,
            of_a_share,
        ),  # the gradient of x is gathered first
        ("all_reduce_matmul", of_x, of_x, of_x),
    ],
)
def test_operators(name: str, forward: Any, grad_x: Any, grad_weight: Any) -> None:
    world = dist.get_world_size()
    rows = OWN - OWN % world  # which the ranks can share evenly
    x = torch.ones(rows, K, requires_grad=True)
    weight = torch.ones(N, K, requires_grad=True)
    operator = getattr(pt, name)
    made = flops_of(lambda: operator(x, weight).sum().backward())
    multiplied = sum(one(rows, world) for one in (forward, grad_x, grad_weight))
    agree(made == 2 * multiplied * K * N, f"{name}: {made}, not {2 * multiplied * K * N}")
    quantized = pt.quantize(weight.detach(), "s4:channel")
    made = flops_of(lambda: operator(x.detach(), quantized))
    expected = 2 * forward(rows, world) * K * N
    agree(made == expected, f"{name} of 4 bits: {made}, not {expected}")


def test_gathered_rows_are_counted_once() -> None:
    x, weight = torch.ones(OWN, K), torch.ones(N, K)
    made = flops_of(lambda: pt.all_gather_matmul(x, weight, gathered=True))
    agree(made == 2 * OWN * dist.get_world_size() * K * N, str(made))


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("kind", [pt.ColumnParallelLinear, pt.RowParallelLinear])
def test_layers(kind: Any, sequence_parallel: bool) -> None:
    layer = kind.from_linear(nn.Linear(K, K), sequence_parallel=sequence_parallel)
    world = dist.get_world_size()
    gathers = sequence_parallel and kind is pt.ColumnParallelLinear
    one = 2 * OWN * (world if gathers else 1) * layer.in_features * layer.out_features
    x = torch.ones(OWN, layer.in_features, requires_grad=True)
    made = flops_of(lambda: layer(x).sum().backward())
    agree(made == 3 * one, f"{made}, not {3 * one}")
    layer.requires_grad_(False)
    made = flops_of(lambda: layer(x).sum().backward())
    agree(made == 2 * one, f"{made}, not {2 * one} with a fixed weight")


def test_a_quantised_layer_keeps_its_sizes_and_is_counted() -> None:
    layer = pt.RowParallelLinear.from_linear(nn.Linear(K, N))
    sizes, said = (layer.in_features, layer.out_features), repr(layer)
    layer.quantize("s8")
    agree((layer.in_features, layer.out_features) == sizes, said)
    agree(repr(layer) == said, repr(layer))
    with torch.no_grad():
        made = flops_of(lambda: layer(torch.ones(OWN, layer.in_features)))
    agree(made == 2 * OWN * sizes[0] * sizes[1], str(made))
