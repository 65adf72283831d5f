"""Weights follow every change of their values, and token counts that change cost nothing."""

import gc
import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import OPERATORS, agree, both
from torch import nn

import plait.torch as pt
from plait import _native
from plait.torch.context import communicator_of

WORLD = int(os.environ["WORLD_SIZE"])
FIXED = pt.Options(fixed_weights=True)


def test_a_weight_that_moves_before_backward() -> None:
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(6, 8))
    x = torch.ones(2, 6, requires_grad=True)
    y = layer(x)
    layer.weight.data = torch.zeros_like(layer.weight)
    gc.collect()
    y.sum().backward()  # by the weight that is there, as torch's own linear does
    assert x.grad is not None
    agree(bool((x.grad == 0).all()), "another weight was read")


def test_fixed_weights_are_read_once_and_follow_what_autograd_counts() -> None:
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(64, 64), options=FIXED)
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))

    def off() -> float:
        exact = nn.functional.linear(x, layer.weight, layer.bias)
        return float((layer(x) - exact).abs().max())

    with torch.no_grad():
        layer(x)
        layer.weight.data += 1
        agree(off() > 0.1, "the values were read, although they were promised to stay")
        layer.weight.mul_(2)
        agree(off() < 1e-4, "counted by autograd")
        layer.weight.data = torch.randn(layer.weight.shape)
        agree(off() < 1e-4, "at another address")
    before = pt.packed_bytes()
    layer(x).sum().backward()
    agree(pt.packed_bytes() < before, "a weight that is trained stays packed")


def _call_operators(tokens: int) -> None:
    x = torch.ones(tokens, 24)
    own = torch.ones(shard_of(tokens), 24)
    weight = torch.ones(40, 24)
    for operator in OPERATORS:
        by_rows = operator in (pt.matmul_all_gather, pt.all_gather_matmul)
        if by_rows:
            operator(own, weight, rows=tokens)  # type: ignore[call-arg]
        else:
            operator(x, weight)


def shard_of(tokens: int) -> int:
    return _native.balanced_shard(tokens, dist.get_rank(), WORLD).count


@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_numbers_of_tokens_that_change_negotiate_and_pack_nothing(
    sequence_parallel: bool, trains: bool
) -> None:
    up, down = both(sequence_parallel, FIXED)
    for layer in (up, down):
        layer.requires_grad_(trains)
    comm = communicator_of(None, "a test")
    packed, mailboxes = [], []
    for tokens in (700, *(i * 71 % 699 for i in range(1, 60))):  # the most come first
        own = shard_of(tokens) if sequence_parallel else tokens
        x = torch.ones(own, 6, requires_grad=trains)
        y = down(up(x, rows=tokens) if sequence_parallel else up(x))
        if trains:
            y.sum().backward()
        if not sequence_parallel and not trains:
            _call_operators(tokens)
        packed.append([dict(one._key.packed) for one in (up, down)])
        mailboxes.append(comm.mailbox_bytes)
    agree(len(set(mailboxes)) == 1, f"mailboxes were made: {mailboxes}")
    same = all(
        {way: id(one.weight) for way, one in now[i].items()}
        == {way: id(one.weight) for way, one in packed[0][i].items()}
        for now in packed
        for i in range(2)
    )
    agree(same and trains != bool(packed[0][0]), "a weight was packed again")


# How a weight changes in place between two calls.
def _swap_rows(weight: nn.Parameter) -> None:
    weight.data[[0, 1]] = weight.data[[1, 0]]


def _swap_columns(weight: nn.Parameter) -> None:
    weight.data[:, [2, 3]] = weight.data[:, [3, 2]]


def _one_value(weight: nn.Parameter) -> None:
    weight.data[-1, -1] += 1


def _by_numpy(weight: nn.Parameter) -> None:
    weight.detach().numpy()[5] *= -1


def _by_an_optimizer(optimizer: type[torch.optim.Optimizer], **how: Any) -> Any:
    def step(weight: nn.Parameter) -> None:
        weight.grad = torch.ones_like(weight)
        optimizer([weight], lr=0.1, **how).step()  # type: ignore[call-arg]
        weight.grad = None

    return step


CHANGES = {
    "rows change places": _swap_rows,
    "columns change places": _swap_columns,
    "one value": _one_value,
    "through numpy": _by_numpy,
    "SGD": _by_an_optimizer(torch.optim.SGD),
    "foreach SGD": _by_an_optimizer(torch.optim.SGD, foreach=True),
    "fused SGD": _by_an_optimizer(torch.optim.SGD, fused=True),
    "foreach Adam": _by_an_optimizer(torch.optim.Adam, foreach=True),
    "fused AdamW": _by_an_optimizer(torch.optim.AdamW, fused=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_weight_is_never_an_old_one(change: str) -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(3, 70, generator=generator)
    grad = torch.randn(3, 66 // dist.get_world_size(), generator=generator)
    linear = nn.Linear(70, 66 // dist.get_world_size() * dist.get_world_size(), bias=False)
    layer = pt.ColumnParallelLinear.from_linear(linear).requires_grad_(False)
    for turn in range(3):
        own = x.clone().requires_grad_()
        y = layer(own)
        y.backward(grad)
        assert own.grad is not None
        whole = grad @ layer.weight.detach()
        dist.all_reduce(whole)
        off = (y - nn.functional.linear(x, layer.weight)).abs().max()
        off_back = (own.grad - whole).abs().max()
        agree(bool(off < 1e-4) and bool(off_back < 1e-3), f"turn {turn} after: {change}")
        if turn < 2:
            CHANGES[change](layer.weight)


@pytest.mark.parametrize("kind", [pt.ColumnParallelLinear, pt.RowParallelLinear])
def test_a_frozen_weight_is_converted_and_packed_once_under_autocast(kind: Any) -> None:
    torch.manual_seed(3)
    linear = nn.Linear(64, 48 * WORLD)
    layer = kind.from_linear(linear, options=FIXED).requires_grad_(False)
    in_bf16 = kind.from_linear(linear.bfloat16(), options=FIXED).requires_grad_(False)
    x = torch.randn(5, layer.weight.shape[1])

    def step(layer: Any, x: torch.Tensor) -> list[torch.Tensor]:
        own = x.clone().requires_grad_()
        out = layer(own)
        out.sum().backward()
        assert own.grad is not None
        return [out.detach(), own.grad]

    start = pt.packed_bytes()
    expected = step(in_bf16, x.bfloat16())
    before = pt.packed_bytes()
    in_both_directions = before - start
    counts = []
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out, grad = step(layer, x)
        agree(torch.equal(out, expected[0]), "other bits than in bf16")
        agree(torch.equal(grad, expected[1].float()), "another gradient")
        counts.append(pt.packed_bytes() - before)
    agree(counts == [in_both_directions] * 3, f"bytes packed: {counts}")
    layer.weight.mul_(2)
    layer.bias.mul_(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        agree(torch.equal(layer(x), 2 * expected[0]), "stale")
    agree(torch.allclose(layer(x), 2 * expected[0].float(), rtol=0.1, atol=0.5), "in f32 again")


def test_weights_are_packed_by_promise_alone() -> None:
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(64, 64))
    before = pt.packed_bytes()
    for trains in (True, False):
        layer.requires_grad_(trains)
        for _ in range(20):
            with torch.no_grad():
                layer(torch.ones(2, 64))
            layer(torch.ones(2, 64, requires_grad=True)).sum().backward()
    agree(pt.packed_bytes() == before, "packed")


def test_packed_weights_go_with_their_module() -> None:
    gc.collect()
    before = pt.packed_bytes()
    layer = pt.ColumnParallelLinear.from_linear(nn.Linear(64, 64), options=FIXED)
    layer.requires_grad_(False)
    weight = torch.randn(8, 6)
    layer(torch.ones(2, 64))
    pt.column_parallel_linear(torch.ones(2, 6), weight, options=FIXED)
    assert pt.packed_bytes() > before
    del layer, weight
    gc.collect()
    assert pt.packed_bytes() == before


# How a part of a quantised weight becomes zero in place.
def _by_data(part: torch.Tensor) -> None:
    part.data.mul_(0)


def _by_broadcast(part: torch.Tensor) -> None:
    if dist.get_rank() == 0:
        part.data.mul_(0)
    dist.broadcast(part, 0)


def _counted(part: torch.Tensor) -> None:
    part.mul_(0)


ERASING = {"data": _by_data, "a collective": _by_broadcast, "counted": _counted}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("part", ["values", "scales"])
@pytest.mark.parametrize("erase", ERASING)
def test_a_packed_quantised_weight_is_never_an_old_one(erase: str, part: str, mode: Any) -> None:
    with mode():
        x, w = torch.ones(2, 8), pt.quantize(torch.ones(6, 8), "s8")
        agree(bool(pt.matmul_all_reduce(x, w).all()), "zeros before any change")
        ERASING[erase](getattr(w, part))
        agree(not pt.matmul_all_reduce(x, w).any(), f"the old {part} after: {erase}")


def test_fixed_quantised_weights_are_read_once() -> None:
    x, w = torch.ones(2 * WORLD, 8), pt.quantize(torch.ones(6, 8), "s8")
    for operator in OPERATORS:
        before = operator(x, w, options=FIXED)
        w.values.data.add_(-1)
        agree(torch.equal(operator(x, w, options=FIXED), before), "the values were read")
        w.values.add_(-1)
        agree(not torch.equal(operator(x, w, options=FIXED), before), "counted by autograd")
