"""Compares Ulysses' layers and greedy decoding between hosts with torch's products over gloo.

tools/netlab.py --rate 2gbit --pin -- python bench/python/exchanges.py [--rounds N] [--rows M]

Two hosts are two network namespaces of one machine; any launcher that sets torchrun's variables
works. Contenders take turns, and each gets the median of the slowest rank's times. A layer of
Ulysses, with the heads of Qwen3-30B-A3B and all widths divided by 4, is compared with a product and
an all_to_all_single() of gloo, with the copies that bring heads together; the largest logit of a
row (Qwen3's vocabulary, hidden 2048) with logits that are gathered as transformers does.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn import functional

import plait.torch as pt

HEADS, KV_HEADS, HIDDEN, SIZE = 32, 4, 512, 32  # of Qwen3-30B-A3B, its widths divided by 4
IDS, HEAD_HIDDEN = 151936, 2048


def turns(contenders: dict[str, Callable[[], torch.Tensor]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(rounds + 1):  # the first one prepares
        for name, call in contenders.items():
            dist.barrier()
            begin = time.perf_counter()
            call()
            taken = torch.tensor(time.perf_counter() - begin)
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            if round_ > 0:
                times[name].append(float(taken))
    return {name: statistics.median(found) for name, found in times.items()}


def exchanged(parts: list[torch.Tensor], rows: list[int]) -> torch.Tensor:
    """Send a part to each rank, and return what comes from each, row after row."""
    columns = parts[dist.get_rank()].shape[1]
    sent = torch.cat([part.reshape(-1) for part in parts])
    out = sent.new_empty(sum(rows), columns)
    counts = [part.numel() for part in parts]
    dist.all_to_all_single(out.view(-1), sent, [one * columns for one in rows], counts)
    return out


def qkv(rows: int, world: int) -> dict[str, Callable[[], torch.Tensor]]:
    """Return contenders that turn own rows of x into all rows of own heads."""
    x = torch.randn(rows // world, HIDDEN).bfloat16()
    linear = torch.nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * SIZE, bias=False).bfloat16()
    layer = pt.UlyssesQKV.from_linear(linear, heads=HEADS, kv_heads=KV_HEADS)
    widths = [HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE]

    def theirs() -> torch.Tensor:
        each = functional.linear(x, linear.weight).split(widths, dim=1)
        shares = [one.chunk(world, dim=1) for one in each]
        parts = [torch.cat(of_rank, dim=1) for of_rank in zip(*shares, strict=True)]
        return exchanged(parts, [rows // world] * world)

    def product() -> torch.Tensor:
        return functional.linear(x, linear.weight)

    return {"plait": lambda: layer(x), "torch + gloo": theirs, "its product": product}


def output(rows: int, world: int) -> dict[str, Callable[[], torch.Tensor]]:
    """Return contenders that turn all rows of own heads into own rows of the output."""
    own = HEADS * SIZE // world
    x = torch.randn(rows, own).bfloat16()
    linear = torch.nn.Linear(HEADS * SIZE, HIDDEN, bias=False).bfloat16()
    layer = pt.UlyssesOutput.from_linear(linear, heads=HEADS, kv_heads=KV_HEADS)

    def theirs() -> torch.Tensor:
        came = torch.empty_like(x)
        dist.all_to_all_single(came, x)
        every = came.view(world, rows // world, own).transpose(0, 1).reshape(rows // world, -1)
        return functional.linear(every, linear.weight)

    every = x.view(rows // world, -1)

    def product() -> torch.Tensor:
        return functional.linear(every, linear.weight)

    return {"plait": lambda: layer(x), "torch + gloo": theirs, "its product": product}


def greedy(rows: int, world: int) -> dict[str, Callable[[], torch.Tensor]]:
    """Return contenders that find the id of each row's largest logit."""
    x = torch.randn(rows, HEAD_HIDDEN).bfloat16()
    torch.manual_seed(2 + dist.get_rank())
    weight = (torch.randn(IDS // world, HEAD_HIDDEN) / HEAD_HIDDEN**0.5).bfloat16()

    def top() -> torch.Tensor:
        return pt.linear_top(x, weight, logits=torch.bfloat16)[1].squeeze(1)

    def gathered() -> torch.Tensor:
        own = functional.linear(x, weight)
        each = [torch.empty_like(own) for _ in range(world)]
        dist.all_gather(each, own)
        return torch.cat(each, dim=1).argmax(dim=1)

    few = weight[:64].clone()
    calls = {
        "plait": top,
        "gathered over gloo": gathered,
        "its product": lambda: functional.linear(x, weight),
        "plait by 64 ids of a rank": lambda: pt.linear_top(x, few, logits=torch.bfloat16)[1],
    }
    own = functional.linear(x, weight)
    each = [torch.empty_like(own) for _ in range(world)]

    def gather() -> torch.Tensor:
        dist.all_gather(each, own)
        return torch.cat(each, dim=1)

    return {**calls, "its gather": gather}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, default=2048, help="positions of the sequence")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    world = dist.get_world_size()
    for name, make, rows in (
        ("UlyssesQKV", qkv, options.rows),
        ("UlyssesOutput", output, options.rows),
        ("greedy", greedy, 1),
        ("greedy", greedy, 16),
    ):
        torch.manual_seed(1)
        contenders = make(rows, world)
        first, second = (call() for call in list(contenders.values())[:2])
        off = 0.0 if name == "greedy" else 0.05 * float(second.abs().max())
        if float((first - second).abs().max()) > off:
            raise SystemExit(f"{name}: results differ")
        found = turns(contenders, options.rounds)
        mine, theirs = list(found.values())[:2]
        if dist.get_rank() == 0:
            each = ", ".join(f"{call} {seconds * 1e3:.2f} ms" for call, seconds in found.items())
            print(f"{name}, {rows} rows: {each}, {theirs / mine:.2f} times as fast", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
