"""Compares plait.grouped_matmul with torch's grouped product, in pairs that take turns.

python bench/python/grouped.py [--threads T] [--pairs N]

Prints a line for each shape: the medians of both, and the median of the pairs' ratios.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import plait

SHAPES = {  # n, k, experts, top
    "qwen3-30b-a3b": (1536, 2048, 128, 8),
    "deepseek-v2-lite": (2816, 2048, 64, 6),
    "gpt-oss-quarter": (1440, 720, 32, 4),
}


def rows_of(experts: int, top: int, tokens: int) -> list[int]:
    generator = torch.Generator().manual_seed(1)
    chosen = torch.rand(tokens, experts, generator=generator).topk(top).indices
    return torch.bincount(chosen.flatten(), minlength=experts).tolist()


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def compare(name: str, dtype: torch.dtype, tokens: int, options: argparse.Namespace) -> None:
    n, k, experts, top = SHAPES[name]
    weight = torch.randn(experts, n, k).to(dtype)
    packed = [plait.PackedWeight(one, layout=plait.WeightLayout.out_in) for one in weight]
    rows = rows_of(experts, top, tokens)
    x = torch.randn(sum(rows), k).to(dtype)
    out = torch.zeros(sum(rows), n, dtype=dtype)
    ends = torch.tensor(rows).cumsum(0).to(torch.int32)
    turned = weight.transpose(1, 2)

    def ours() -> None:
        plait.grouped_matmul(x, packed, rows, out, threads=options.threads)

    def theirs() -> torch.Tensor:
        return torch.nn.functional.grouped_mm(x, turned, offs=ends)

    ours()
    expected = theirs().float()
    # Both add k products in f32, in an order of their own, and round the sum.
    magnitude = torch.nn.functional.grouped_mm(x.abs(), turned.abs(), offs=ends).float()
    bound = 2 * k * 2.0**-24 * magnitude + torch.finfo(dtype).eps * expected.abs()
    assert bool(((out.float() - expected).abs() <= bound).all()), f"{name} {dtype}: wrong results"
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(options.pairs)]
    mine, other = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    kind = str(dtype).removeprefix("torch.")
    print(
        f"{name:17} {kind:9} tokens {tokens:4}  plait {mine:9.3f} ms  torch {other:9.3f} ms"
        f"  {ratio:6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--pairs", type=int, default=11)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in SHAPES:
        for dtype in (torch.bfloat16, torch.float32):
            for tokens in (1, 4, 16, 512):
                compare(name, dtype, tokens, options)


if __name__ == "__main__":
    main()
