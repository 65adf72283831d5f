"""Problems of ParallelKernelBench around a vocabulary and columns: by torch and gloo, and by plait.

Each is written the way its users write it, with collectives of torch.distributed, and as one call.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import UNIT, agree, shard
from torch.nn import functional

import plait.torch as pt
from plait import WeightLayout, WeightView, _native
from plait.torch.rows import view


@pytest.fixture(scope="module")
def gloo() -> Iterator[dist.ProcessGroup]:
    group = dist.new_group(backend="gloo")
    yield group
    dist.destroy_process_group(group)


def _gathered(own: torch.Tensor, sizes: list[int], group: dist.ProcessGroup) -> torch.Tensor:
    """Gather along columns: gloo's all_gather() takes tensors of one size."""
    most = max(sizes)
    padded = functional.pad(own, (0, most - own.shape[1]))
    each = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(each, padded, group=group)
    return torch.cat([one[:, :size] for one, size in zip(each, sizes, strict=True)], dim=1)


def _weight(rows: torch.Tensor) -> Any:
    return WeightView(view(rows), WeightLayout.out_in)


class _Problem:
    """x [m, k] and a weight [n, k] that all ranks can make, and this rank's shares of them."""

    def __init__(self, m: int, n: int, k: int, dtype: torch.dtype, group: Any) -> None:
        generator = torch.Generator().manual_seed(m)
        self.x = torch.randn(m, k, generator=generator).to(dtype)
        self.weight = (torch.randn(n, k, generator=generator) / k**0.5).to(dtype)
        self.targets = torch.randint(n, (m,), generator=generator)
        self.group, self.ids, self.inputs = group, shard(n), shard(k)
        world = dist.get_world_size()
        self.ids_of = [_native.balanced_shard(n, rank, world).count for rank in range(world)]
        self.inputs_of = [_native.balanced_shard(k, rank, world).count for rank in range(world)]
        self.own = self.weight[self.ids].contiguous()

    def logits(self) -> torch.Tensor:
        return _gathered(functional.linear(self.x, self.own), self.ids_of, self.group)


Answers = tuple[torch.Tensor, torch.Tensor]


def columns_after(one: _Problem) -> Answers:
    """Multiply by each rank's columns, and concatenate them (14; with one row, 46)."""
    out = one.x.new_empty(one.x.shape[0], one.weight.shape[0])
    _native.matmul_all_gather_columns(view(one.x), _weight(one.own), view(out), pt.communicator())
    return out, one.logits()


def columns_before(one: _Problem) -> Answers:
    """Gather x along k, and multiply it by each rank's part of the weight (11, 12)."""
    x = one.x[:, one.inputs]
    gathered, out = torch.empty_like(one.x), one.x.new_empty(one.x.shape[0], one.own.shape[0])
    _native.all_gather_columns_matmul(
        view(x), _weight(one.own), view(gathered), view(out), pt.communicator()
    )
    agree(torch.equal(gathered, one.x), "gathered columns")
    return out, functional.linear(_gathered(x, one.inputs_of, one.group), one.own)


def sums_after(one: _Problem) -> Answers:
    """Multiply shares of k, and add up the ranks' sums (13)."""
    x, weight = one.x[:, one.inputs].contiguous(), one.weight[:, one.inputs].contiguous()
    sums = functional.linear(x.float(), weight.float())
    dist.all_reduce(sums, group=one.group)
    out = torch.empty_like(sums, dtype=x.dtype)
    _native.matmul_all_reduce(view(x), _weight(weight), view(out), pt.communicator())
    return out, sums


def greedy(one: _Problem) -> Answers:
    """Choose the largest of all ranks' logits: compared are the logits that were chosen."""
    logits = one.logits()
    _, ids = pt.linear_top(one.x, one.own, logits=one.x.dtype)
    return logits.gather(1, ids), logits.max(1, keepdim=True).values


def cross_entropy(one: _Problem) -> Answers:
    """Compute the loss of a vocabulary that ranks share, by three all-reduces (73)."""
    loss = pt.linear_cross_entropy(
        one.x, one.own, one.targets, reduction="none", logits=one.x.dtype
    )
    logits = functional.linear(one.x, one.own).float()
    most = logits.max(1).values
    dist.all_reduce(most, dist.ReduceOp.MAX, group=one.group)
    sums = (logits - most[:, None]).exp().sum(1)
    dist.all_reduce(sums, group=one.group)
    at = one.targets - one.ids.start
    is_own = (at >= 0) & (at < one.own.shape[0])
    target = logits.gather(1, at.clamp(0, one.own.shape[0] - 1)[:, None])[:, 0] * is_own
    dist.all_reduce(target, group=one.group)
    return loss, sums.log() + most - target


def log_probs(one: _Problem) -> Answers:
    """Compute probabilities of targets, by logits of some rows that are gathered (82)."""
    found = pt.linear_log_probs(one.x, one.own, one.targets, logits=one.x.dtype)
    wanted = one.logits().float().log_softmax(1).gather(1, one.targets[:, None])[:, 0]
    return found, wanted


def log_probs_of_the_largest(one: _Problem) -> Answers:
    """Compute probabilities among the 5 largest logits of a row, of the third of them (83)."""
    values, _ = pt.linear_top(one.x, one.own, 5, logits=one.x.dtype)
    wanted = one.logits().float().topk(5).values
    return values.log_softmax(1)[:, 2], wanted.log_softmax(1)[:, 2]


def gradient_of_log_probs(one: _Problem) -> Answers:
    """Compute the gradient of x for the probabilities of targets (84)."""
    x = one.x.clone().requires_grad_()
    pt.linear_log_probs(x, one.own, one.targets, logits=one.x.dtype).sum().backward()
    assert x.grad is not None
    by_logits = -one.logits().float().softmax(1)
    by_logits.scatter_add_(1, one.targets[:, None], torch.ones_like(by_logits))
    wanted = functional.linear(by_logits[:, one.ids], one.own.float().T)
    dist.all_reduce(wanted, group=one.group)
    return x.grad, wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(1, 515, 96), (130, 260, 67)], ids=str)
@pytest.mark.parametrize(
    "problem",
    [
        columns_after,
        columns_before,
        sums_after,
        greedy,
        cross_entropy,
        log_probs,
        log_probs_of_the_largest,
        gradient_of_log_probs,
    ],
)
def test_both_agree(
    problem: Callable[[_Problem], Answers],
    sizes: tuple[int, int, int],
    dtype: torch.dtype,
    gloo: dist.ProcessGroup,
) -> None:
    one = _Problem(*sizes, dtype, gloo)
    found, wanted = problem(one)
    exact = (one.x.double().abs() @ one.weight.double().abs().T).max()
    off = 2 * (sizes[2] * UNIT[torch.float32] + UNIT[dtype]) * float(exact)
    far = float((found.double() - wanted.double()).abs().max())
    agree(found.shape == wanted.shape and far <= off, f"{far} above {off}")
