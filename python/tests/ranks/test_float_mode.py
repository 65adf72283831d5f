"""torch.set_flush_denormal() changes no bit of what plait computes, and stays as it is."""

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from ranks import OPERATORS, agree

import plait.torch as pt

TINY = 1e-40  # smaller than any normal number of f32


@pytest.fixture
def flushing() -> Iterator[Callable[[bool], bool]]:
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor has no such mode")
    yield torch.set_flush_denormal
    torch.set_flush_denormal(False)


def tiny(rows: int, columns: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return TINY * (1 + torch.rand(rows, columns, generator=generator))


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return pt.row_parallel_linear(x, w)


def summed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    out = x.detach().clone()
    dist.all_reduce(out)
    return out


@pytest.mark.parametrize("call", [*OPERATORS, layer, summed])
def test_no_bit_changes(
    call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    flushing: Callable[[bool], bool],
) -> None:
    x, w = tiny(4, 6, seed=1), torch.ones(5, 6)
    # torch itself would round these to zero in that mode.
    grads = torch.full((4 * dist.get_world_size(), 5), TINY)

    def step() -> list[torch.Tensor]:
        leaf = x.clone().requires_grad_(call is not summed)
        out = call(leaf, w)
        if call is summed:
            return [out]
        (grad,) = torch.autograd.grad(out, leaf, grads[: out.shape[0]])
        return [out.detach(), grad]

    expected = step()
    agree(all(bool((one != 0).all()) for one in expected), "small values were lost")
    flushing(True)
    found = step()
    is_flushing = (torch.full((1,), TINY) * 0.5).item() == 0
    flushing(False)
    agree(all(map(torch.equal, found, expected)), "the mode changed bits")
    agree(is_flushing, "the call has changed the thread's mode")


def test_a_row_of_experts_alone_has_its_bits_among_many(
    flushing: Callable[[bool], bool],
) -> None:
    """Many rows are shared by threads, and one is computed by the caller's."""
    rows, width, inner = 2000, 16, 32
    x = (tiny(1, width, seed=3) * (2.0**-66 / TINY)).repeat(rows, 1)
    ids, weights = torch.zeros(rows, 1, dtype=torch.int64), torch.ones(rows, 1)
    # The activation multiplies two of about 2 ** -66, and no result of it is a normal number.
    up = torch.full((1, 2 * inner, width), 1 / width)
    down = torch.full((1, width, inner), 1 / inner)
    alone = dist.new_group([dist.get_rank()], use_local_synchronization=True)
    layer = pt.ExpertParallel.share(up, down, group=alone)
    flushing(True)
    one, many = (layer(x[:count], ids[:count], weights[:count]) for count in (1, rows))
    flushing(False)
    agree(bool((one != 0).all()), "small values were lost")
    agree(torch.equal(one[0], many[0]), "a row alone has other bits")
