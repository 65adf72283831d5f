"""Compares plait.torch.linear_cross_entropy with Megatron-Core's own loss over gloo, in turns.

torchrun --nproc-per-node 2 bench/python/cross_entropy.py [--rows M] [--ids V] [--hidden K]
         [--pairs N]

Both train one step of an output layer that ranks share: loss, gradient of x (summed over the
ranks), gradient of the weight. Megatron multiplies, and calls vocab_parallel_cross_entropy. Rank 0
prints the medians, the median of the pairs' ratios, and how far memory rose above what operands and
gradients take in the first call of each. With `--pairs 0` there are no other calls. Both use the
threads that torchrun gives a rank: one, unless OMP_NUM_THREADS says otherwise. The default
vocabulary is a quarter of that of Qwen3 (151936).
"""

import argparse
import ctypes
import os
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy

import plait.torch


def memory(what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def rise(call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, int]:
    """Make a call, and say how far the process's memory rose during it."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    loss = call()
    return loss, memory("VmHWM") - before


def seconds(call: Callable[[], object]) -> float:
    dist.barrier()
    begin = time.perf_counter()
    call()
    taken = torch.tensor(time.perf_counter() - begin)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return float(taken)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--ids", type=int, default=37984)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    world, rank = dist.get_world_size(), dist.get_rank()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=world)
    torch.manual_seed(1)
    x = torch.randn(options.rows, 1, options.hidden).bfloat16().requires_grad_()
    targets = torch.randint(options.ids, (options.rows, 1))
    own = options.ids // world
    torch.manual_seed(2 + rank)
    weight = (torch.randn(own, options.hidden) / options.hidden**0.5).bfloat16().requires_grad_()

    def theirs() -> torch.Tensor:
        x.grad = weight.grad = None
        copied = copy_to_tensor_model_parallel_region(x)
        logits = torch.nn.functional.linear(copied, weight)
        loss: torch.Tensor = vocab_parallel_cross_entropy(logits.float(), targets).mean()
        loss.backward()
        return loss.detach()

    def ours() -> torch.Tensor:
        x.grad = weight.grad = None
        loss = plait.torch.linear_cross_entropy(x, weight, targets, logits=torch.bfloat16)
        loss.backward()
        return loss.detach()

    # The first calls: plait keeps its memory for the next ones. No gradients are there before.
    gradients = 2 * (x.numel() + weight.numel())
    found, mine_rises = rise(ours)
    x.grad = weight.grad = None
    expected, their_rises = rise(theirs)
    difference = float((expected - found).abs() / expected.abs())
    assert difference < 5e-7, f"losses {expected} and {found} differ"
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(options.pairs)]
    logits = 4 * options.rows * options.ids
    rises = [(one - gradients) / logits for one in (mine_rises, their_rises)]
    if rank == 0:
        print(
            f"{options.rows} rows of {options.hidden}, {options.ids} ids, {world} ranks over gloo"
        )
        print(f"loss {float(found):.6f}, relative difference {difference:.1e}")
        if pairs:
            mine, other = (statistics.median(times) for times in zip(*pairs, strict=True))
            ratio = statistics.median(b / a for a, b in pairs)
            print(f"plait {mine:.3f} s, Megatron {other:.3f} s, ratio {ratio:.3f}")
        print(f"a rank's memory rises by {rises[0]:.3f} and {rises[1]:.3f} of all f32 logits")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    main()
