"""Layers of sequence parallelism by all-to-all: an attention block against one process's."""

import copy
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree, shard
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import plait
import plait.torch as pt

HIDDEN, HEADS, KV_HEADS, SIZE, BATCH = 40, 10, 5, 8, 1
SCHEDULES = ("serial", "pipelined", "fused")


class Attention(nn.Module):
    """A plain block; x is [positions, batch, hidden]."""

    def __init__(self, dtype: torch.dtype, bias: bool = True) -> None:
        super().__init__()
        self.qkv: Any = nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * SIZE, bias=bias, dtype=dtype)
        self.out: Any = nn.Linear(HEADS * SIZE, HIDDEN, bias=bias, dtype=dtype)

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sizes = (HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE)
        split: tuple[torch.Tensor, ...] = self.qkv(x).split(sizes, dim=-1)
        return split

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        heads = [part.unflatten(-1, (-1, SIZE)).permute(1, 2, 0, 3) for part in self.split(x)]
        # One head after another: torch's own products depend on how many there are.
        each = heads[0].shape[1] // heads[1].shape[1]
        done = [
            scaled_dot_product_attention(
                heads[0][:, i : i + 1], *(one[:, i // each : i // each + 1] for one in heads[1:])
            )
            for i in range(heads[0].shape[1])
        ]
        return torch.cat(done, 1).permute(2, 0, 1, 3).flatten(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.attend(x))
        return out


class Shared(Attention):
    """A block whose ranks share the positions."""

    def __init__(self, whole: Attention, rows: int, group: Any, options: pt.Options) -> None:
        nn.Module.__init__(self)
        how: Any = {"kv_heads": KV_HEADS, "group": group, "options": options}
        self.qkv = pt.UlyssesQKV.from_linear(whole.qkv, heads=HEADS, **how)
        self.out = pt.UlyssesOutput.from_linear(whole.out, heads=HEADS, **how)
        self.rows = rows

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        split: tuple[torch.Tensor, ...] = self.qkv.split(self.qkv(x, rows=self.rows))
        return split


def alone() -> Any:
    """A group of this rank, whose products are plait's too."""
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    return groups[dist.get_rank()]


@pytest.fixture(scope="module")
def one(world: int) -> Any:
    return alone()


def problem(dtype: torch.dtype, rows: int) -> tuple[Attention, torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    return (
        Attention(dtype),
        torch.randn(rows, BATCH, HIDDEN).to(dtype),
        torch.randn(rows, BATCH, HIDDEN).to(dtype),
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_block_has_the_bits_of_one_rank(one: Any, schedule: Any, dtype: torch.dtype) -> None:
    rows = 37
    whole, x, grad = problem(dtype, rows)
    options = pt.Options(schedule=schedule)
    alone = Shared(whole, rows, one, options)
    shared = Shared(copy.deepcopy(whole), rows, None, options)
    own = shard(rows)
    wanted_x = x.clone().requires_grad_()
    own_x = x[own].clone().requires_grad_()
    wanted, out = alone(wanted_x), shared(own_x)
    agree(torch.equal(out, wanted[own]), f"forward, {schedule} {dtype}")
    wanted.backward(grad)
    out.backward(grad[own])
    assert wanted_x.grad is not None
    assert own_x.grad is not None
    agree(torch.equal(own_x.grad, wanted_x.grad[own]), f"grad_x, {schedule} {dtype}")
    # Each rank has the sum over its own rows; data-parallel trainers add these up.
    for name, parameter in whole.named_parameters():
        part = shared.get_parameter(name).grad
        assert part is not None
        assert parameter.grad is not None
        total = part.double()
        dist.all_reduce(total)
        error = (total - parameter.grad.double()).abs().max()
        scale = parameter.grad.double().abs().max()
        unit = 2.0**-23 if dtype is torch.float32 else 2.0**-7
        agree(bool(error <= rows * unit * scale), f"{name}: {error} of {scale}")


def test_a_block_agrees_with_torch(one: Any) -> None:
    rows = 30
    whole, x, _ = problem(torch.float32, rows)
    out = Shared(whole, rows, None, pt.Options())(x[shard(rows)])
    wanted = whole(x)[shard(rows)]
    agree(bool(torch.allclose(out, wanted, atol=1e-5)), "torch's own block")


def test_ranks_share_a_kv_head(one: Any, world: int) -> None:
    heads, rows, rank = 2 * world, 13, dist.get_rank()
    torch.manual_seed(4)
    linear, x = nn.Linear(HIDDEN, (heads + 2) * SIZE), torch.randn(rows, HIDDEN)
    how: Any = {"heads": heads, "kv_heads": 1}
    alone = pt.UlyssesQKV.from_linear(linear, group=one, **how)
    shared = pt.UlyssesQKV.from_linear(copy.deepcopy(linear), **how)
    wanted_x, own_x = x.clone().requires_grad_(), x[shard(rows)].clone().requires_grad_()
    wanted, out = alone(wanted_x), shared(own_x, rows=rows)
    q, k, v = alone.split(wanted)
    own = torch.cat((q[:, 2 * rank * SIZE :][:, : 2 * SIZE], k, v), 1)
    agree(torch.equal(out, own), "q of own heads, and copies of k and v")
    # The gradients of the copies are whole numbers, so their sum is exact.
    out.backward(torch.full_like(out, rank + 1.0))
    grad = torch.full_like(wanted, world * (world + 1) / 2)
    grad[:, : heads * SIZE] = (
        torch.arange(heads).div(2, rounding_mode="floor").add(1).repeat_interleave(SIZE)
    )
    wanted.backward(grad)
    assert wanted_x.grad is not None
    assert own_x.grad is not None
    agree(torch.equal(own_x.grad, wanted_x.grad[shard(rows)]), "grad_x")


def test_frozen_weights_and_inputs_get_no_gradient() -> None:
    rows = 3 * dist.get_world_size()
    whole, x, grad = problem(torch.float32, rows)
    whole.qkv.weight.requires_grad_(False)
    own_x = x[shard(rows)].clone()
    shared = Shared(whole, rows, None, pt.Options())
    kept: list[torch.Size] = []

    def keep(saved: torch.Tensor) -> torch.Tensor:
        kept.append(saved.shape)
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        shared.qkv(own_x)
    agree(kept == [whole.qkv.weight.shape], f"a frozen weight needs no x: {kept}")
    shared(own_x).backward(grad[shard(rows)])
    agree(whole.qkv.weight.grad is None, "a frozen weight has a gradient")
    # The layers take over the very parameters, which optimizers know.
    agree(whole.qkv.bias.grad is not None and shared.qkv.bias is whole.qkv.bias, "the bias")
    with torch.no_grad():
        agree(not shared(own_x).requires_grad, "under no_grad")


@pytest.mark.parametrize("schedule", ["serial", None])
def test_the_report_names_both_directions(schedule: Any) -> None:
    pt.forget_report()
    layer = pt.UlyssesQKV.from_linear(
        nn.Linear(HIDDEN, 16 * SIZE), heads=8, kv_heads=4, options=pt.Options(schedule=schedule)
    )
    for _ in range(3):
        layer(torch.ones(3, 1, HIDDEN, requires_grad=True)).sum().backward()
    rows = {row.operator: row for row in pt.report().rows}
    n, k, m = 16 * SIZE, HIDDEN, 3 * dist.get_world_size()
    sizes = {"matmul_all_to_all": (m, n, k), "all_to_all_matmul": (m, k, n)}
    agree({name: (row.m, row.n, row.k) for name, row in rows.items()} == sizes, str(rows))
    for row in rows.values():
        agree((row.plan, row.calls) == (schedule or "fused", 3), str(row))
        agree("traced" not in str(pt.report()) and row.seconds > 0, str(pt.report()))


def test_a_copy_is_a_layer_of_its_own() -> None:
    whole, x, _ = problem(torch.float32, 6)
    shared = Shared(whole, 6, None, pt.Options())
    copied = copy.deepcopy(shared)
    out = shared(x[shard(6)])
    agree(torch.equal(copied(x[shard(6)]), out), "a copy")
    agree(copied.qkv.weight is not whole.qkv.weight, "it has parameters of its own")


def test_refuses_what_does_not_fit(world: int) -> None:
    layer = nn.Linear(HIDDEN, 25)
    with pytest.raises(plait.Error, match="25 outputs, which 10 heads and twice 5 kv heads"):
        pt.UlyssesQKV.from_linear(layer, heads=HEADS, kv_heads=KV_HEADS)
    with pytest.raises(plait.Error, match="40 inputs, which 9 heads can't share evenly"):
        pt.UlyssesOutput.from_linear(layer, heads=9)
    with pytest.raises(plait.Error, match="the all-to-all is served by 'native'"):
        pt.UlyssesOutput.from_linear(layer, heads=8, options=pt.Options(engine="c10d"))
    qkv = pt.UlyssesQKV.from_linear(nn.Linear(HIDDEN, 20 * SIZE), heads=HEADS, kv_heads=KV_HEADS)
    with pytest.raises(plait.Error, match="ranks share the first"):
        qkv(torch.ones(HIDDEN))
    with pytest.raises(plait.Error, match=r"UlyssesQKV: x is .2, 41.; its last dim"):
        qkv(torch.ones(2, 41))
    few = pt.UlyssesOutput(torch.ones(HIDDEN, 8), None, [[(0, 8)]] * (world - 1))
    with pytest.raises(plait.Error, match=f"there are {world - 1} groups of columns for {world}"):
        few(torch.ones(world, 8))
    with pytest.raises(plait.Error, match=r"and rank . of . has "):
        qkv(torch.ones(2, HIDDEN), rows=50)
